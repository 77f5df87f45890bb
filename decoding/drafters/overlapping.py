"""A drafter model that drafts the next round while the target verifies this one."""

import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

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

_MISS_EXPONENT = 1.0
"""r of the power law F^-r by which the token after the kept ones is none of the drafter's F
likeliest. A guess; not measured."""

_LEAST = 0.02
"""Distance that acceptance keeps from 0 and 1 here, so that no outcome counts as impossible. A
guess; not measured."""

MOST_CANDIDATES = 8
"""Most candidates for the token after the kept ones, at one position. A guess; not measured."""

MOST_OUTCOMES = 32
"""Most outcomes of one verification that are drafted for. A guess; not measured."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The first kept tokens of a draft, then the drafter's candidate of this rank, from 0."""

    kept: int
    rank: int


def likeliest_outcomes(
    acceptance: Sequence[float], exponent: float = _MISS_EXPONENT
) -> Iterator[Outcome]:
    """Outcomes of verifying a draft, by their share of avoided misses, largest first.

    acceptance: of each drafted token, given that all before it are accepted. The candidate of rank
    f avoids f^-r - (f+1)^-r of the misses after k kept tokens, which is about r f^-(1+r). Taken in
    this order, position k has F_k candidates in proportion to P(k)^(1/(1+r)) however many outcomes
    there is time for: the fan-out of Kumar, Dao and May 2026 (arXiv 2603.03251), which is optimal
    under that law.
    """
    weights = kept_distribution(acceptance)
    waiting = [(-weight, kept, 0) for kept, weight in enumerate(weights)]
    heapq.heapify(waiting)
    for _ in range(MOST_OUTCOMES):
        if not waiting:
            return
        _, kept, rank = waiting[0]
        yield Outcome(kept, rank)
        if rank + 1 < MOST_CANDIDATES:
            weight = weights[kept] * (rank + 2) ** -(1.0 + exponent)
            heapq.heapreplace(waiting, (-weight, kept, rank + 1))
        else:
            heapq.heappop(waiting)


def kept_distribution(acceptance: Sequence[float]) -> list[float]:
    """Probability that exactly the first k tokens are kept, for k from none to all."""
    joint, chances = 1.0, list[float]()
    for share in acceptance:
        bounded = min(max(share, _LEAST), 1.0 - _LEAST)
        chances.append(joint * (1.0 - bounded))
        joint *= bounded
    return [*chances, joint]


Candidates = NDArray[np.int64]
"""The drafter's likeliest tokens at one position, likeliest first."""


@dataclass(slots=True)
class Predraft:
    """A draft made ahead, with the candidates at each of its positions."""

    draft: GrowingDraft = field(default_factory=GrowingDraft)
    candidates: list[Candidates] = field(default_factory=list[Candidates])


class Predrafts:
    """Drafts made ahead in one round, each for one text.

    Every one is sampled from the drafter's distribution after its text, by numbers that nothing
    else sees, and before it is known which text comes. It may be used after this text and no other,
    and once: then it is distributed as a draft made now.
    """

    def __init__(self, committed: int) -> None:
        """committed: length of the text that is final, and so the beginning of each."""
        self._committed = committed
        self._made: dict[tuple[int, ...], Predraft] = {}

    def __len__(self) -> int:
        return len(self._made)

    def add(self, text: Sequence[int]) -> Predraft:
        """Begin a draft to follow text."""
        predraft = self._made[self._key(text)] = Predraft()
        return predraft

    def has(self, text: Sequence[int]) -> bool:
        """Whether a token was drafted to follow exactly this text."""
        predraft = self._made.get(self._key(text))
        return predraft is not None and len(predraft.draft) > 0

    def take(self, text: Sequence[int]) -> Predraft | None:
        """The draft that was made to follow exactly this text, which is then gone."""
        return self._made.pop(self._key(text)) if self.has(text) else None

    def _key(self, text: Sequence[int]) -> tuple[int, ...]:
        return tuple(text[self._committed :])


@dataclass(frozen=True, slots=True)
class Unranked:
    """Logits at a position of a draft; candidates are taken from them while the target runs."""

    logits: NDArray[np.float32]


Position = Candidates | Unranked
"""The candidates at a position of a draft, or what they are to be taken from."""


@dataclass(frozen=True, slots=True)
class Round:
    """A draft that is being verified, and what to draft ahead for.

    history: before the draft. positions: one for each drafted token. acceptance: of each drafted
    token, given that all before it are accepted. longest: most tokens drafted for an outcome.
    """

    history: Sequence[int]
    drafted: Sequence[int]
    positions: Sequence[Position]
    acceptance: Sequence[float]
    longest: int


def predrafting(
    drafter: DraftModel, sampler: Sampler, current: Round, predrafts: Predrafts
) -> Iterator[None]:
    """Draft ahead for one outcome after another; yields after each pass of the drafter.

    Nothing in here knows of the verification: the outcomes follow from the draft alone, and each is
    drafted for by the drafter's own distribution. Between two passes the round may end, as whether
    it does depends on no token still to be drafted.
    """
    drafted, positions = tuple(current.drafted), list(current.positions)
    for outcome in likeliest_outcomes(current.acceptance):
        text = [*current.history, *drafted[: outcome.kept]]
        if outcome.kept == len(positions):  # the token after all, from one pass more
            if drafter.room(text, 1) < 1:
                continue
            positions.append(ranked(drafter.logits(text)))
            yield
        candidates = positions[outcome.kept]
        if isinstance(candidates, Unranked):
            candidates = _other_than(drafted[outcome.kept], ranked(candidates.logits))
            positions[outcome.kept] = candidates
        if outcome.rank >= len(candidates):
            continue
        text.append(int(candidates[outcome.rank]))
        count = drafter.room(text, current.longest)
        if text[-1] in drafter.end_tokens or count < 1:
            continue
        predraft = predrafts.add(text)
        for row in drafter.drawing(text, count, predraft.draft, sampler):
            token = predraft.draft.tokens[-1]
            predraft.candidates.append(_other_than(token, ranked(row)))
            yield


def ranked(logits: NDArray[np.float32]) -> Candidates:
    """The likeliest tokens of a row of logits, one more than are ever asked for."""
    count = min(MOST_CANDIDATES + 1, len(logits))
    best = np.argpartition(logits, len(logits) - count)[-count:]
    return best[np.argsort(-logits[best], kind="stable")]


def _other_than(token: int, candidates: Candidates) -> Candidates:
    """Candidates without the drafted token, which was rejected if another one follows."""
    return candidates[candidates != token]


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
        is_ready = self._predrafts is not None and self._predrafts.has(history)
        return 1 if is_ready else self._drafter.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        return self._drafter.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        self.rest()
        return self._drafter.read(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self.rest()
        began = self._clock()
        count = self._drafter.room(history, limit)
        if count <= 0:
            return NO_DRAFT
        made = self._predrafts
        tried, ready = (None, None) if made is None else (len(made), made.take(history))
        draft, positions = GrowingDraft(), list[Position]()
        for position in self._drawn(history, count, ready, draft):
            positions.append(position)
            if len(draft) == count or keep_on is None:
                continue
            if not keep_on(draft.confidence[-1], draft.evidence[-1]):
                break
        ahead = None if tried is None else self._outcome(tried, ready, len(draft))
        done = replace(draft.done(self.name), ahead=ahead)
        is_ahead = self._always or self._worth.is_next_ahead()
        if is_ahead == (made is not None):
            self._timed = began, len(done), is_ahead
        if is_ahead:
            self._draft_ahead(history, done, positions)
        return done

    def _drawn(
        self, history: Sequence[int], count: int, ready: Predraft | None, draft: GrowingDraft
    ) -> Iterator[Position]:
        """Add the tokens that are ready to draft, then sample further ones, up to count in all.

        Yields the position of each, before the next one is looked at: whether one follows may
        depend on those before it alone.
        """
        if ready is not None:
            made = ready.draft
            for place, candidates in enumerate(ready.candidates):
                token, q_draft = made.tokens[place], made.distributions[place]
                draft.add(token, made.confidence[place], made.evidence[place], q_draft)
                yield candidates
                if len(draft) == count or token in self._drafter.end_tokens:
                    return
        for row in self._drafter.drawing(history, count, draft, self._sampler):
            yield Unranked(row.copy())

    def _draft_ahead(
        self, history: Sequence[int], draft: Draft, positions: Sequence[Position]
    ) -> None:
        kept = _LENGTH_MEMORY if self._mean_length else 0.0
        self._mean_length = kept * self._mean_length + (1.0 - kept) * len(draft)
        predrafts = self._predrafts = Predrafts(self._committed)
        self._is_committed = False
        current = Round(
            history=tuple(history),
            drafted=draft.tokens,
            positions=positions,
            acceptance=self._acceptance(draft),
            longest=math.ceil(self._mean_length),
        )
        self._worker.start(predrafting(self._drafter, self._sampler_ahead, current, predrafts))

    def _outcome(self, drafts: int, ready: Predraft | None, length: int) -> Ahead:
        """What a round in which so many drafts were made did for a draft of this length."""
        if ready is None:
            return Ahead(drafts)
        used = min(length, len(ready.draft))
        return Ahead(drafts, is_hit=True, hidden_seconds=used * self._draw_seconds)
