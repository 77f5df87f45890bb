"""Replies side by side: what they ask of the model at one moment runs in one pass.

Every sequence keeps what was accepted of its own rows, so that ragged lengths need no padding (Qian
et al. 2024, "BASS", arXiv 2404.15778, pads them or splits attention).
"""

import math
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from backends.base import Context, Logits, SpecchatError
from backends.base.model import SharedContext
from decoding.estimation.cost import CostModel
from decoding.joined_pass import JoinedReply
from decoding.planning.risk_budget import RiskBudget
from decoding.prefill import GROUP

_LEAST_READ = 16
"""Tokens of prompts that are read beside those who write, whatever these draft. A guess; not
measured."""

_WORTH_A_TRIAL = 2 / 3
"""Estimated acceptance of first tokens from which drafts that the budget refuses are worth a trial:
as decoding.planning.risk_budget has it of refused drafts."""

_KEPT = 0.95
"""Weight of past passes in the present rate, per pass: about the last 20. A guess; not measured."""


class Batch:
    """Replies that share the cells of a context, each in a sequence of its own.

    costs: of passes, which are told how many share them; None where nothing drafts. Everything runs
    on the thread that calls step.
    """

    def __init__(
        self,
        context: SharedContext,
        costs: Callable[[], CostModel | None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._context = context
        self._costs = costs
        self._clock = clock
        self._replies: list[JoinedReply] = []
        self._tokens = self._seconds = 0.0
        """Of recent passes that were shared."""
        self._budget = RiskBudget()
        """Of passes that are shared, in plain ones: a draft delays all."""
        self._last_extra = self._row_price = 0.0
        """Of the last one: cost beyond a plain one, and of each drafted row (CostModel.share)."""

    def __len__(self) -> int:
        return len(self._replies)

    def begin(self, context: Context, work: Callable[[], None]) -> None:
        """Let work, which generates a reply in a sequence of the context, take part from now on."""
        self._replies.append(JoinedReply(context, work))

    def step(self) -> None:
        """Run one pass for all: those who write, and pieces of the prompts of those who read."""
        for reply in [one for one in self._replies if not (one.tokens or one.offer or one.left)]:
            self._resume(reply, None)
        self._share_rows()
        self._share_pieces()
        running = [reply for reply in self._replies if reply.tokens]
        for group in _groups(running, self._most_rows):
            writing = [reply for reply in group if reply.is_writing]
            before = sum(reply.context.length for reply in writing)
            rows = self._together(group, writing) if len(group) > 1 else None
            for place, reply in enumerate(group):
                self._resume(reply, rows[place] if rows else None)
            if rows and writing:
                tokens = sum(reply.context.length for reply in writing) - before
                self._tokens += tokens if len(writing) == len(group) else 0.0
                self._budget.settle(tokens / len(writing), 1.0 + self._last_extra)

    @property
    def _most_rows(self) -> int:
        """Of a pass: those of a draft are never run in one that kernels compute otherwise."""
        is_writing = any(reply.is_writing for reply in self._replies)
        return self._context.max_logits if is_writing else self._context.n_chunk

    def _share_pieces(self) -> None:
        """Tell those who read how much of their prompts is run: as much of each, beside others.

        Passes are whole groups of rows: of a model of 1.1B in Q8_0, 60 rows of which 4 write take
        the processor 22.2 plain steps, 63 take 24.2; those that write, and 64 apart, 3.9 and 22.9.
        """
        reading = sorted((one for one in self._replies if one.left), key=lambda one: one.left)
        taken = sum(len(reply.tokens) for reply in self._replies)
        room = max(
            self._most_rows // GROUP * GROUP - taken, min(_LEAST_READ, self._context.n_chunk)
        )
        for others, reply in zip(reversed(range(len(reading))), reading, strict=True):
            count = min(reply.left, max(room // (1 + others), 1))
            room -= count
            self._resume(reply, count if len(self._replies) > 1 else None)

    def _share_rows(self) -> None:
        """Tell those who drafted how much of it is run."""
        asking, costs = [reply for reply in self._replies if reply.offer], self._costs()
        if not asking:
            return
        assert costs is not None, "who drafts knows costs"
        writing = sum(max(len(reply.tokens), 1) for reply in self._replies if reply.is_writing)
        plain = writing / costs.seconds(min(costs.width(writing), costs.largest))
        rate = max(self._tokens / self._seconds, plain) if self._seconds else plain
        offers = [reply.offer for reply in asking]
        # Those who read get half of the pass at least.
        is_read = any(reply.left for reply in self._replies)
        most = max(self._context.max_logits // (1 + is_read) - writing, 0)
        wanted = shared_rows(offers, writing, costs, rate, most)
        counts, affordable = wanted, self._budget.affordable
        if _extra(writing, writing + sum(wanted), costs) > affordable:
            counts = shared_rows(offers, writing, costs, rate, most, affordable)
        if sum(counts):
            self._budget.admit(_extra(writing, writing + sum(counts), costs))
        elif sum(wanted):
            share = sum(offer[0] for offer in offers) / len(offers)
            self._budget.record_refusal(would_be_accepted=share > _WORTH_A_TRIAL)
        for reply, count in zip(asking, counts, strict=True):
            self._resume(reply, count)

    def close(self) -> None:
        """End all replies that have begun, wherever they are."""
        for reply in self._replies:
            reply.throw()
        self._replies.clear()

    def _together(
        self, group: Sequence[JoinedReply], writing: Sequence[JoinedReply]
    ) -> list[Logits] | None:
        """The rows of each; None where each is to run alone: a fault is one's own.

        A pass that reads prompts too is not measured, nor filled up.
        """
        costs, began, is_read = self._costs(), self._clock(), len(writing) < len(group)
        passes = [(one.context, one.tokens) for one in group]
        n_logits = [one.n_logits for one in group] if is_read else ()
        count = sum(len(one.tokens) for one in writing)
        width = costs.width(count) if costs and not is_read else count
        context, tokens = passes[-1]
        passes[-1] = (context, [*tokens, *[tokens[-1]] * (width - count)])  # whoever asked cuts it
        try:
            rows = self._context.forward_together(passes, n_logits)
        except SpecchatError:
            return None
        seconds = self._clock() - began
        if costs is not None and writing:
            drafted, self._last_extra = count - len(writing), _extra(len(writing), width, costs)
            self._row_price = self._last_extra * len(writing) / drafted if drafted else 0.0
        if not is_read:
            self._tokens, self._seconds = _KEPT * self._tokens, _KEPT * self._seconds + seconds
            if costs is not None:
                costs.observe_together(width, seconds)
        return [*rows[:-1], rows[-1][: len(tokens)]]

    def _resume(self, reply: JoinedReply, told: Logits | int | None) -> None:
        """Let a reply go on until it waits again; its costs are those beside the others."""
        costs = self._costs()
        if costs is not None:
            costs.share(len(self._replies), self._row_price)
        try:
            reply.switch(told) if reply else reply.switch()
        finally:
            if costs is not None:
                costs.share(1)
            if reply.dead:
                self._replies.remove(reply)


def _extra(writing: int, rows: int, costs: CostModel) -> float:
    """Cost of a pass beyond that of one row for each reply, in such passes."""
    plain, passed = (costs.seconds(min(costs.width(n), costs.largest)) for n in (writing, rows))
    return max(passed / plain - 1.0, 0.0)


def shared_rows(
    offers: Sequence[Sequence[float]],
    writing: int,
    costs: CostModel,
    rate: float,
    most: int,
    affordable: float = math.inf,
) -> list[int]:
    """How many tokens of each of several drafts are worth running in one pass.

    Rows go to the tokens that are likeliest to be accepted, whoever drafted them, as long as they
    bring more than the pass takes longer for. offers: acceptance of each token, given those before
    it. writing: rows that are run in any case. rate: tokens a second that all together make. most:
    rows of all drafts. affordable: what the pass may cost beyond a plain one, in plain ones.
    Liu et al. 2024, "Optimizing Speculative Decoding for Serving Large Language Models Using
    Goodput" (arXiv 2406.14066), choose one length for all by the same measure.
    """
    joint = [
        (share, place)
        for place, offer in enumerate(offers)
        for share in accumulate(offer, operator.mul)
    ]
    joint.sort(key=lambda pair: -pair[0])  # stable: those of one draft stay in order
    plain = costs.seconds(min(costs.width(writing), costs.largest))
    best, best_count, expected = 0.0, 0, 0.0
    for count, (share, _) in enumerate(joint[: min(most, costs.largest - writing)], start=1):
        expected += share
        extra = _extra(writing, writing + count, costs)
        gain = expected - rate * plain * extra
        if gain > best and extra <= affordable:
            best, best_count = gain, count
    counts = [0] * len(offers)
    for _, place in joint[:best_count]:
        counts[place] += 1
    return counts


def _groups(replies: Sequence[JoinedReply], most: int) -> Iterator[list[JoinedReply]]:
    """Replies whose rows fit one pass."""
    group, rows = list[JoinedReply](), 0
    for reply in replies:
        if rows + len(reply.tokens) > most and group:
            yield group
            group, rows = [], 0
        group.append(reply)
        rows += len(reply.tokens)
    if group:
        yield group
