"""A drafter model that drafts the next round while the target verifies this one."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn
from decoding.drafters.base import GrowingDraft
from decoding.drafters.draft_model import DraftModel
from decoding.estimation.cost import DraftCost
from decoding.events import Ahead
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import BatchMeans

_LEAST = 0.02
"""Distance that acceptance keeps from 0 and 1 here, so that no outcome counts as impossible. A
guess; not measured."""

MOST_CANDIDATES = 8
"""Most candidates for the token after the kept ones, at one position. A guess; not measured."""

MOST_OUTCOMES = 32
"""Most outcomes of one verification that are drafted for. A guess; not measured."""


class Outcome(NamedTuple):
    """The first kept tokens of a draft, then the drafter's candidate of this rank, from 0."""

    kept: int
    rank: int


def likeliest_outcomes(acceptance: Sequence[float]) -> list[Outcome]:
    """Outcomes of verifying a draft, by their share of avoided misses, largest first.

    acceptance: of each drafted token, given that all before it are accepted. Of the tokens after k
    kept ones a share of 1/F is none of the drafter's F likeliest, a guess, so that the candidate
    of rank f avoids about f^-2 of the misses. Taken in this order, position k has F_k candidates
    in proportion to the root of P(k) however many outcomes there is time for: the fan-out of
    Kumar, Dao and May 2026 (arXiv 2603.03251), which is optimal under that law.
    """
    avoided = {
        Outcome(kept, rank): share * (rank + 1) ** -2.0
        for kept, share in enumerate(kept_distribution(acceptance))
        for rank in range(MOST_CANDIDATES)
    }
    return sorted(avoided, key=avoided.__getitem__, reverse=True)[:MOST_OUTCOMES]


def kept_distribution(acceptance: Sequence[float]) -> list[float]:
    """Probability that exactly the first k tokens are kept, for k from none to all."""
    joint, chances = 1.0, list[float]()
    for share in acceptance:
        bounded = min(max(share, _LEAST), 1.0 - _LEAST)
        chances.append(joint * (1.0 - bounded))
        joint *= bounded
    return [*chances, joint]


Candidates = NDArray[np.int64]
"""The drafter's likeliest tokens at one position, likeliest first, without the drafted one."""


def _candidates(logits: NDArray[np.float32], drafted: int | None = None) -> Candidates:
    """Those of a row of logits: a drafted token was rejected if another one follows."""
    count = min(MOST_CANDIDATES + 1, len(logits))
    best = np.argpartition(logits, len(logits) - count)[-count:]
    best = best[np.argsort(-logits[best], kind="stable")]
    return best if drafted is None else best[best != drafted]


Position = Callable[[], Candidates]
"""Gives the candidates at a position of a draft: while the target runs, as it takes a while."""


@dataclass(slots=True)
class Predraft:
    """A draft made ahead, with the candidates at each of its positions."""

    draft: GrowingDraft = field(default_factory=GrowingDraft)
    candidates: list[Candidates] = field(default_factory=list[Candidates])


Predrafts = dict[tuple[int, ...], Predraft]
"""Drafts made ahead in one round, by what follows the committed text.

Every one is sampled from the drafter's distribution after its text, by numbers that nothing else
sees, and before it is known which text comes. It may be used after this text and no other, and
once: then it is distributed as a draft made now.
"""


class DrafterThread:
    """Runs passes on one thread, which is kept from round to round: engines have threads for each.

    Engines release Python's lock while they compute, so that passes run beside the target's. A
    round is finite: where nobody stops it, as after an error, it ends by itself, so that the
    program can end.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="drafter")
        self._round: Future[None] | None = None
        self._is_stopped = False

    def start(self, passes: Iterator[object]) -> None:
        """Run passes one after another until the last one, or until stop."""
        assert self._round is None, "the round before was not stopped"
        self._is_stopped = False
        self._round = self._executor.submit(self._run, passes)

    def _run(self, passes: Iterator[object]) -> None:
        while not self._is_stopped:
            try:
                next(passes)
            except StopIteration:
                return

    def stop(self) -> None:
        """Start no further pass, and return once the present one has ended.

        Raises what a pass of the round raised.
        """
        self._is_stopped = True
        if self._round is None:
            return
        try:
            self._round.result()
        finally:
            if self._round.done():  # else this thread was interrupted, and the round goes on
                self._round = None

    def close(self) -> None:
        """Stop for good, whatever a pass raised."""
        with suppress(Exception):  # a faulty drafter is closed like any other
            self.stop()
        self._executor.shutdown()


_TRIED, _PERIOD = 12, 512
"""Rounds in turn, then ahead, of each so many; the others are as was quicker. In simulation, a
drafter that loses 13 % by drafting ahead loses less than 1 % by the trials."""

_MOST_LOST = 0.5
"""Rounds that a trial may lose: what passes took longer is believed of later ones for a while."""

_LEFT_RATE, _MOST_LEFT = 0.03, 4.0
"""Share of a surprise that corrects what drafts take: about the last 30 count, as a draft is ready
or it is not. A draft that takes longer than the most was interrupted by another program."""

_LENGTH_MEMORY = 0.8
"""Weight that the mean length of drafts keeps at each draft, for the next one's. A guess; not
measured."""


class _Worth:
    """Whether drafting ahead pays, by what rounds of one length take with it and without."""

    def __init__(self) -> None:
        self._rounds = 0
        self._in_turn: dict[int, BatchMeans] = {}
        """Rounds since the trial began, by drafted tokens."""
        self._lost = self._most = 0.0
        """Seconds that those ahead took longer, and that they may until a trial ends."""

    def is_next_ahead(self) -> bool:
        place = self._rounds % _PERIOD
        self._rounds += 1
        if place == 0:  # either may have changed since the last trial
            self._in_turn, self._lost, self._most = {}, 0.0, math.inf
        most = self._most if place < 2 * _TRIED else 0.0
        return place >= _TRIED and self._lost < most

    def add(self, drafted: int, seconds: float, *, is_ahead: bool) -> None:
        if not is_ahead:
            self._in_turn.setdefault(drafted, BatchMeans()).add(seconds)
        elif known := self._in_turn.get(drafted):
            mean = known.total / known.count
            self._lost += seconds - mean
            self._most = _MOST_LOST * mean


class AheadCost(DraftCost):
    """Cost of drafts of which some are ready, and others as in turn: a mean, for any is either."""

    def __init__(self, in_turn: DraftCost) -> None:
        super().__init__(0.0, 0.0, is_steady=in_turn.is_steady, single_reads=in_turn.single_reads)
        self._in_turn = in_turn
        self._left = 1.0
        """Share of the time of drafts in turn that they take."""

    @property
    def draw_seconds(self) -> float:
        return self._in_turn.draw_seconds * self._left

    @property
    def read_seconds(self) -> float:
        return self._in_turn.read_seconds

    @property
    def begin_seconds(self) -> float:
        return self._in_turn.begin_seconds

    def observe(self, drafted: int, backlog: int, seconds: float) -> None:
        alone = self._in_turn.seconds(drafted, backlog)
        if alone > 0.0 and seconds >= 0.0:
            self._left += _LEFT_RATE * (min(seconds / alone, _MOST_LEFT) - self._left)


class Overlapping(Drafter):
    """Drafts like its drafter; between a draft and the next one, its worker drafts ahead.

    A draft made ahead is used if the text is exactly the one it was made for; otherwise it drafts
    then. The model's context is used by the worker between propose and the next call of another
    method, and by the caller else. acceptance: estimates it for each token of a draft.
    draw_seconds: what drafting a token in turn takes, from which hidden time is reckoned. always:
    drafts ahead even where that takes longer.
    """

    is_free = False

    def __init__(
        self,
        drafter: DraftModel,
        worker: DrafterThread,
        *,
        acceptance: Callable[[Draft], Sequence[float]] = lambda draft: draft.confidence,
        draw_seconds: float = 0.0,
        always: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert not drafter.draws_on_device, "what is on a device belongs to one thread"
        self.name = drafter.name
        self._drafter = drafter
        self._worker = worker
        self._acceptance = acceptance
        self._draw_seconds = draw_seconds
        self._always = always
        self._clock = clock
        self._worth = _Worth()
        self._timed: tuple[float, int, bool] | None = None
        """Of the present round: when it began, drafted tokens, and whether it is one ahead; None if
        it is between both ways."""
        self._sampler = self._sampler_ahead = Sampler(SamplingSettings())
        self._committed = 0
        self._after = 0
        """Length of the text that the latest round followed."""
        self._predrafts: Predrafts | None = None
        """Made in the latest round; None if that was before the latest step."""
        self._is_committed = False
        """Whether the text of the step that the latest round ran in is committed."""
        self._mean_length = 0.0

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self.rest()
        self._predrafts = self._timed = None
        self._committed = len(history)
        self._sampler, self._sampler_ahead = sampler, sampler.ahead()
        self._drafter.begin(history, sampler)

    def rest(self) -> None:
        self._worker.stop()

    def close(self) -> None:
        """Draft ahead never again."""
        self._worker.close()

    def commit(self, history: Sequence[int]) -> None:
        self.rest()
        if self._timed is not None:
            began, drafted, is_ahead = self._timed
            self._worth.add(drafted, self._clock() - began, is_ahead=is_ahead)
            self._timed = None
        if self._is_committed:  # a step has passed in which nothing was drafted ahead
            self._predrafts = None
        self._is_committed = True
        self._committed = len(history)
        self._drafter.commit(history)

    def backlog(self, history: Sequence[int]) -> int:
        self.rest()
        made = self._predrafts.get(self._key(history)) if self._predrafts else None
        return 1 if made is not None and made.draft.tokens else self._drafter.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        return self._drafter.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        self.rest()
        return self._drafter.read(history)

    def _key(self, text: Sequence[int]) -> tuple[int, ...]:
        return tuple(text[self._after :])

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self.rest()
        began = self._clock()
        count = self._drafter.room(history, limit)
        if count <= 0:
            return NO_DRAFT
        made, tried = self._predrafts, len(self._predrafts or ())
        ready = (made or {}).pop(self._key(history), Predraft())
        draft, positions = GrowingDraft(), list[Position]()
        for position in self._drawn(history, count, ready, draft):
            positions.append(position)
            if len(draft) == count or keep_on is None:
                continue
            if not keep_on(draft.confidence[-1], draft.evidence[-1]):
                break
        ahead = None
        if made is not None:
            used = min(len(draft), len(ready.draft))
            ahead = Ahead(tried, is_hit=used > 0, hidden_seconds=used * self._draw_seconds)
        done = replace(draft.done(self.name), ahead=ahead)
        is_ahead = self._always or self._worth.is_next_ahead()
        if is_ahead == (made is not None):
            self._timed = began, len(done), is_ahead
        if is_ahead:
            kept = _LENGTH_MEMORY if self._mean_length else 0.0
            self._mean_length = kept * self._mean_length + (1.0 - kept) * len(done)
            self._predrafts, self._after, self._is_committed = {}, self._committed, False
            outcomes = likeliest_outcomes(self._acceptance(done))
            passes = self._passes(tuple(history), done.tokens, positions, outcomes)
            self._worker.start(passes)
        return done

    def _drawn(
        self, history: Sequence[int], count: int, ready: Predraft, draft: GrowingDraft
    ) -> Iterator[Position]:
        """Add the tokens that are ready to draft, then sample further ones, up to count in all.

        Yields the position of each, before the next one is looked at: whether one follows may
        depend on those before it alone.
        """
        made = ready.draft
        for place, candidates in enumerate(ready.candidates):
            token = made.tokens[place]
            q_draft = made.distributions[place] if made.distributions else None
            draft.add(token, made.confidence[place], made.evidence[place], q_draft)
            yield lambda candidates=candidates: candidates
            if len(draft) == count or token in self._drafter.end_tokens:
                return
        for row in self._drafter.drawing(history, count, draft, self._sampler):
            yield partial(_candidates, row.copy(), draft.tokens[-1])

    def _passes(
        self,
        history: Sequence[int],
        drafted: Sequence[int],
        positions: Sequence[Position],
        outcomes: Sequence[Outcome],
    ) -> Iterator[None]:
        """Draft ahead for one outcome after another; yields after each pass of the drafter.

        Nothing in here knows of the verification: the outcomes follow from the draft alone, and
        each is drafted for by the drafter's own distribution. Between two passes the round may end,
        as whether it does depends on no token still to be drafted.
        """
        drafter, predrafts = self._drafter, self._predrafts
        assert predrafts is not None, "as propose made it"
        known: dict[int, Candidates] = {}
        for kept, rank in outcomes:
            text = [*history, *drafted[:kept]]
            if kept not in known and kept < len(positions):
                known[kept] = positions[kept]()
            elif kept not in known:  # the token after all, from one pass more
                if drafter.room(text, 1) < 1:
                    continue
                known[kept] = _candidates(drafter.logits(text))
                yield
            if rank >= len(known[kept]):
                continue
            text.append(int(known[kept][rank]))
            count = drafter.room(text, math.ceil(self._mean_length))
            if text[-1] in drafter.end_tokens or count < 1:
                continue
            predraft = predrafts[self._key(text)] = Predraft()
            for row in drafter.drawing(text, count, predraft.draft, self._sampler_ahead):
                predraft.candidates.append(_candidates(row, predraft.draft.tokens[-1]))
                yield
