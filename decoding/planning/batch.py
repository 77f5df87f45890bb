"""Replies side by side: what they ask of the model at one moment runs in one pass.

Every sequence keeps what was accepted of its own rows, so that ragged lengths need no padding (Qian
et al. 2024, "BASS", arXiv 2404.15778, pads them or splits attention).
"""

import math
import operator
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate

from backends.base import Context, Logits, SpecchatError
from backends.base.model import SharedContext
from decoding.estimation.cost import CostModel
from decoding.joined_pass import JoinedReply, PassCost, SharedDrafter
from decoding.planning.risk_budget import RiskBudget
from decoding.prefill import GROUP

_LEAST_READ = 16
"""Tokens of prompts that are read beside those who write, whatever these draft. A guess; not
measured."""

_LONGEST_GAP = 0.25
"""Most seconds of a pass that reads what programs ask while a person's answer is written, unless
twice a plain pass takes longer: four tokens a second are about as fast as one reads."""

_OVERDRAFT = 1.0
"""Plain passes that the one budget of all replies may be overdrawn by: what a draft of several
loses if all of it is rejected, which it never is. Four replies of 200 tokens in texts right at 0.3
keep 0.98 of plain decoding (8B on a simulated H100)."""

_KEPT = 0.95
"""Weight of past passes in the present rate, per pass: about the last 20. A guess; not measured."""


class Batch:
    """Replies that share the cells of a context, each in a sequence of its own.

    costs: of passes, which are told how many share them; None where nothing drafts. is_awaited:
    whether something waits for the next call of step to return; a reply that is alone goes on until
    then. Everything runs on the thread that calls step.
    """

    def __init__(
        self,
        context: SharedContext,
        costs: Callable[[], CostModel | None],
        clock: Callable[[], float] = time.perf_counter,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> None:
        self._context = context
        self._costs = costs
        self._clock = clock
        self._is_awaited = is_awaited
        self._replies: list[JoinedReply] = []
        self._tokens = self._cost = 0.0
        """Of recent passes that were shared: of each that writes, and in plain ones."""
        self._budget = RiskBudget()
        """Of passes that are shared, in plain ones: a draft delays all."""
        self._last_extra = self._row_price = 0.0
        """Of the last one: cost beyond a plain one, and of each drafted row (CostModel.share)."""
        self._drafting = 0.0
        """Seconds of passes of drafters for the next one, those in which one reads included."""

    def __len__(self) -> int:
        return len(self._replies)

    def begin(self, context: Context, work: Callable[[], None], *, is_program: bool = True) -> None:
        """Let work, which generates a reply in a sequence of the context, take part from now on.

        is_program: whether a program asked, and no person waits for it.
        """
        reply = JoinedReply(context, work, is_program=is_program, is_awaited=self._is_awaited)
        self._replies.append(reply)

    def step(self) -> None:
        """Run one pass for all: those who write, and pieces of the prompts of those who read.

        All passes of one that is alone, until somebody waits.
        """
        self._drafting = 0.0
        if (costs := self._costs()) is not None:
            costs.hold(sum(reply.context.length for reply in self._replies))
        for reply in [one for one in self._replies if not (one.tokens or one.offer or one.left)]:
            began, reads = self._clock(), reply.drafting is not None
            self._resume(reply, None)
            self._drafting += self._clock() - began if reads else 0.0
        is_read = any(reply.left for reply in self._replies)
        for reply in self._replies:
            reply.is_held = is_read and not reply.left and reply.is_program and reply.due > 0
        while self._share_rows() or self._draft():
            pass
        self._share_pieces()
        for group in self._groups():
            writing = [reply for reply in group if reply.is_writing]
            before = sum(reply.context.length for reply in writing)
            rows = self._together(group, writing) if len(group) > 1 else None
            for place, reply in enumerate(group):
                self._resume(reply, rows[place] if rows else None)
            if rows and writing:
                tokens = sum(reply.context.length for reply in writing) - before
                tokens, cost = tokens / len(writing), 1.0 + self._last_extra
                self._budget.settle(tokens, cost)
                if len(writing) == len(group):
                    self._tokens = _KEPT * self._tokens + tokens
                    self._cost = _KEPT * self._cost + cost

    def _draft(self) -> bool:
        """Run a pass of each drafter for all who draft with it; whether there was one.

        Where it fails, each runs its own: a fault is one's own.
        """
        by_drafter = defaultdict[SharedDrafter, list[tuple[JoinedReply, Context]]](list)
        for reply in self._going:
            if reply.tokens and (sequence := reply.drafting):
                by_drafter[reply.drafters[sequence]].append((reply, sequence))
        for drafter, drafting in by_drafter.items():
            passes = [(sequence, reply.tokens) for reply, sequence in drafting]
            began, rows = self._clock(), list[Logits | None]([None] * len(drafting))
            with suppress(Exception):  # too many tokens, a drafter closed meanwhile
                n_logits = [reply.n_logits for reply, _ in drafting]
                rows[:] = drafter.context.forward_together(passes, n_logits)
            for (reply, _), row in zip(drafting, rows, strict=True):
                self._resume(reply, row)
            seconds = self._clock() - began  # drawing a token from a row takes time too
            self._drafting += seconds
            if rows[0] is not None:
                drafter.cost.observe_together(sum(len(tokens) for _, tokens in passes), seconds)
        return bool(by_drafter)

    @property
    def _going(self) -> list[JoinedReply]:
        """Replies that go on in this pass."""
        return [reply for reply in self._replies if not reply.is_held]

    def _groups(self) -> Iterator[list[JoinedReply]]:
        """Replies whose tokens run in one pass."""
        running, most = [reply for reply in self._going if reply.tokens], self._most_rows
        if self._reads_apart:
            writing = [reply for reply in running if reply.is_writing]
            running = [reply for reply in running if not reply.is_writing]
            yield from _groups(writing, most)
            most = self._context.n_chunk
        yield from _groups(running, most)

    @property
    def _most_rows(self) -> int:
        """Of a pass: those of a draft are never run in one that kernels compute otherwise."""
        is_writing = any(reply.is_writing for reply in self._going)
        return self._context.max_logits if is_writing else self._context.n_chunk

    @property
    def _reads_apart(self) -> bool:
        """Whether a pass that reads has no rows of those who write, whose pass comes before.

        So it may be a block, which the processor's kernels attend with at once: 64 rows and a pass
        of 4 who write, of a model of 1.1B in Q8_0 that holds 64, 512 and 2,048 tokens, took it
        17.0, 19.4 and 29.0 ms a row that was read; 60 of which 4 write 16.7, 22.8 and 45.3 ms.
        """
        is_writing = any(reply.is_writing for reply in self._going)
        return bool(self._context.exact_batch) and is_writing and self._only_programs_write

    @property
    def _only_programs_write(self) -> bool:
        return all(reply.is_program or not reply.is_writing for reply in self._going)

    def _share_pieces(self) -> None:
        """Tell those who read how much of their prompts is run.

        One reads after the other, a person's prompt first, in the order in which they would end if
        each read as much of every pass: so nobody ends later than then, and most end earlier
        (Friedman and Henderson 2003, "Fairness and efficiency in web server protocols"). And four
        pieces of a pass attend to all that the four have read: 64 rows of a model of 350M took the
        processor 1.19 times as long as 64 of one prompt.

        What is written for programs begins when it would then, with more others beside it.
        """
        going = self._going
        reading = [reply for reply in going if reply.left]
        room = self._room_to_read(sum(len(reply.tokens) for reply in going))
        waiting = [reply for reply in self._replies if reply.left or reply.is_held]
        for reply in self._replies:
            reply.due = reply.due - room / len(waiting) if reply in waiting else 0.0
        is_apart = not any(reply.is_writing for reply in going)
        for reply in sorted(reading, key=lambda one: (one.is_program, one.due)):
            self._resume(reply, None if is_apart else min(reply.left, room))
            room, is_apart = max(room - len(reply.tokens), 0), False

    def _room_to_read(self, taken: int) -> int:
        """How many tokens of prompts to read in a pass that runs so many others in any case.

        Whole groups of rows: of a model of 1.1B in Q8_0, 60 rows of which 4 write take the
        processor 22.2 plain steps, 63 take 24.2. Smaller pieces would let those who write use up to
        6 % less of a processor (simulated), and prompts be read in twice the time.
        """
        if self._reads_apart:
            return self._context.exact_batch
        most = self._most_rows // GROUP * GROUP - taken
        most, costs = max(most, min(_LEAST_READ, self._context.n_chunk)), self._costs()
        if costs is None or self._only_programs_write:
            return most
        longest = max(_LONGEST_GAP, 2 * _seconds(taken, costs))
        least = min(GROUP - taken % GROUP, most)
        counts = range(least, most + 1, GROUP)
        quick = [one for one in counts if _seconds(taken + one, costs) <= longest]
        return max(quick, default=least)

    def _share_rows(self) -> bool:
        """Tell those who drafted, or would, how much of it is run; whether there were any."""
        going, costs = self._going, self._costs()
        asking = [reply for reply in going if reply.offer]
        if not asking:
            return False
        assert costs is not None, "who drafts knows costs"
        writers = [reply for reply in going if reply.is_writing]
        writing = sum(max(len(reply.tokens), reply.rows) for reply in writers)
        plain = len(writers) / _seconds(len(writers), costs)
        rate = max(self._tokens / self._cost, 1.0) * plain if self._cost else plain
        offers, drafters = [one.offer for one in asking], [one.cost for one in asking]
        # Those who read get half of the pass at least, if it is theirs too.
        is_read = any(reply.left for reply in going) and not self._reads_apart
        most = max(self._context.max_logits // (1 + is_read) - writing, 0)
        counts, extra = shared_rows(offers, drafters, writing, costs, rate, most)
        reading = sum(one.start for one in asking) / _seconds(len(writers), costs)
        affordable = self._budget.affordable + _OVERDRAFT - reading
        if extra > affordable:
            counts, extra = shared_rows(offers, drafters, writing, costs, rate, most, affordable)
        if sum(counts):
            self._budget.admit(extra)
        for reply, count in zip(asking, counts, strict=True):
            self._resume(reply, count)
        return True

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
        passes[-1] = (context, [*tokens, *[tokens[-1]] * (width - count)])
        try:
            rows = self._context.forward_together(passes, n_logits)
        except SpecchatError:
            return None
        seconds = self._clock() - began
        context.truncate(context.length - (width - count))
        if costs is not None and writing:
            drafted, extra = count - len(writing), _extra(len(writing), width, costs)
            self._row_price = extra * len(writing) / drafted if drafted else 0.0
            self._last_extra = extra + self._drafting / _seconds(len(writing), costs)
        if not is_read and costs is not None:
            costs.observe_together(width, seconds)
        return [*rows[:-1], rows[-1][: len(tokens)]]

    def _resume(self, reply: JoinedReply, told: Logits | int | None) -> None:
        """Let a reply go on until it waits again; its costs are those beside the others."""
        costs = self._costs()
        if costs is not None:
            costs.share(len(self._replies), self._row_price)
        reply.is_alone = len(self._replies) == 1
        try:
            reply.switch(told) if reply else reply.switch()
        finally:
            if costs is not None:
                costs.share(1)
            if reply.dead:
                self._replies.remove(reply)


def _extra(writing: int, rows: int, costs: CostModel) -> float:
    """Cost of a pass beyond that of one row for each reply, in such passes."""
    return max(_seconds(rows, costs) / _seconds(writing, costs) - 1.0, 0.0)


def _seconds(rows: int, costs: CostModel) -> float:
    """Of a pass over so many rows; beyond those of which it is known each takes as long."""
    most = costs.largest
    known = costs.seconds(min(costs.width(rows), most))
    if rows <= most:
        return known
    further = max(known - costs.seconds(most // 2), 0.0) / (most - most // 2)
    return known + (rows - most) * further


def shared_rows(
    offers: Sequence[Sequence[float]],
    drafters: Sequence[PassCost | None],
    writing: int,
    costs: CostModel,
    rate: float,
    most: int,
    affordable: float = math.inf,
) -> tuple[list[int], float]:
    """How many tokens of each of several drafts are worth running in one pass.

    Rows go to the tokens that are likeliest to be accepted, whoever drafted them, as long as they
    bring more than the pass takes longer for, and the passes of the drafters that are yet to draft
    them. Returns also what all that costs beyond a plain pass, in plain ones.

    offers: acceptance of each token, given those before it. drafters: of each offer that is yet to
    be drafted. writing: rows that are run in any case. rate: tokens a second that all together
    make. most: rows of all drafts. affordable: most of such cost.
    Liu et al. 2024, "Optimizing Speculative Decoding for Serving Large Language Models Using
    Goodput" (arXiv 2406.14066), choose one length for all by the same measure.
    """
    joint = [
        (share, place)
        for place, offer in enumerate(offers)
        for share in accumulate(offer, operator.mul)
    ]
    joint.sort(key=lambda pair: -pair[0])  # stable: those of one draft stay in order
    drafted = [(share, place) for share, place in joint if drafters[place] is None]
    plain, most = _seconds(writing, costs), min(most, costs.largest - writing)
    best, best_counts, best_extra = 0.0, [0] * len(offers), 0.0
    for rows in (joint, drafted) if len(drafted) < len(joint) else (joint,):
        counts, expected, drafting = [0] * len(offers), 0.0, 0.0
        together = Counter[tuple[PassCost, int]]()
        for count, (share, place) in enumerate(rows[:most], start=1):
            counts[place] += 1
            expected += share
            if (drafter := drafters[place]) is not None:
                level = drafter, counts[place]
                drafting -= drafter.together(together[level])
                together[level] += 1
                drafting += drafter.together(together[level])
            extra = _extra(writing, writing + count, costs) + drafting / plain
            gain = expected - rate * plain * extra
            if gain > best and extra <= affordable:
                best, best_counts, best_extra = gain, list(counts), extra
    return best_counts, best_extra


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
