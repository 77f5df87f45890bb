"""Cost of drafting ahead: what is hidden of the drafting, and what both at once take longer."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

from backends.base import Context
from decoding.estimation.cost import CostModel, DraftCost
from decoding.overlap.overlapping import ThreadSplit, Worker, kept_distribution, likeliest_outcomes

_HIDDEN_RATE = 0.03
"""Share of a surprise by which the hidden share is corrected at each draft: about the last 30
count, as a draft is ready or it is not. With 0.1, chance parked what gains 6 % (simulated)."""

_RECOVERY = 0.003
"""Share of what was learned that is forgotten at each step without drafting ahead, so that it is
tried again after some hundred steps: chance or other load may have parked it. A guess; where it
never pays, this costs 0.3 % in simulation."""

_SLOWDOWN_RATE = 0.15
"""Share of a surprise, in log seconds, by which the slowdown is corrected; as that of trees."""

_LARGEST_SURPRISE = 0.5
"""Largest surprise that counts, in log seconds, so that one interruption by another program does
not distort it. A guess; not measured."""

_DOUBTFUL = 0.1
"""Change of the slowdown, in log seconds, that a pass alone has to confirm. A guess; not
measured."""


class OverlapCost(DraftCost):
    """Cost of drafting where a part of the drafting time is hidden behind verification.

    in_turn: cost of drafts of the same model that are not made ahead. hidden: share of the drafting
    time that is expected to be hidden; every draft after another corrects it, and it falls below 0
    where waiting for a pass that is no longer wanted takes longer than what is saved.
    """

    def __init__(self, in_turn: DraftCost, hidden: float) -> None:
        super().__init__(0.0, 0.0, is_steady=in_turn.is_steady)
        self.hidden = self._expected = hidden
        self._in_turn = in_turn

    @property
    def draw_seconds(self) -> float:
        return self._in_turn.draw_seconds * (1.0 - self.hidden)

    @property
    def read_seconds(self) -> float:
        return self._in_turn.read_seconds

    @property
    def begin_seconds(self) -> float:
        return self._in_turn.begin_seconds

    def observe(self, drafted: int, backlog: int, seconds: float) -> None:
        """Correct the hidden share by the seconds of a draft; backlog as in seconds."""
        alone = self._in_turn.seconds(drafted, backlog)
        if alone > 0.0 and seconds >= 0.0:
            hidden = min(max(1.0 - seconds / alone, -1.0), 1.0)
            self.hidden += _HIDDEN_RATE * (hidden - self.hidden)

    def observe_in_turn(self, drafted: int, backlog: int, seconds: float) -> None:
        """Take in a draft of which nothing was made ahead: it cost what drafts in turn do.

        seconds: without waiting for a pass that was under way.
        """
        self._in_turn.observe(drafted, backlog, seconds)

    def recover(self) -> None:
        """Come back a little to what was expected at first."""
        self.hidden += _RECOVERY * (self._expected - self.hidden)


class Slowdown:
    """Factor by which the target's passes take longer while its drafter drafts ahead."""

    def __init__(self, factor: float) -> None:
        self._learned = self._measured = math.log(factor)
        self._unconfirmed = 0.0
        """What was learned since passes alone were seen, in log seconds."""

    @property
    def factor(self) -> float:
        """At least 1: if passes seem faster for the company, the target became faster."""
        return math.exp(max(self._learned, 0.0))

    @property
    def is_doubtful(self) -> bool:
        """Whether a pass alone is needed to tell a slowdown from a drift of the target."""
        return abs(self._unconfirmed) > _DOUBTFUL

    def observe(self, expected: float, seconds: float) -> float:
        """Correct it by a pass that took seconds, where expected ones were expected alone.

        Returns the factor of this pass, without more surprise than counts.
        """
        if expected <= 0.0 or seconds <= 0.0:
            return self.factor
        surprise = math.log(seconds / expected) - self._learned
        bounded = min(max(surprise, -_LARGEST_SURPRISE), _LARGEST_SURPRISE)
        factor, change = math.exp(self._learned + bounded), _SLOWDOWN_RATE * bounded
        self._learned += change
        self._unconfirmed += change
        return factor

    def confirm(self, drift: float) -> None:
        """Give back what a pass alone shows to be a drift of the target, in log seconds.

        A drift that is not seen while drafting ahead is taken for a slowdown, as its passes take
        longer too. What passes alone do not show turns out to be a slowdown little by little.
        """
        low, high = min(self._unconfirmed, 0.0), max(self._unconfirmed, 0.0)
        given_back = min(max(drift, low), high)
        self._learned -= given_back
        confirmed = _SLOWDOWN_RATE * self._unconfirmed
        self._unconfirmed -= max(given_back, confirmed, key=abs)

    def recover(self) -> None:
        """Come back a little to what was measured at first."""
        self._learned += _RECOVERY * (self._measured - self._learned)


@dataclass(frozen=True, slots=True)
class OverlappedPasses:
    """Cost of verifying drafts while the next one is drafted."""

    passes: CostModel
    slowdown: Slowdown

    @property
    def largest(self) -> int:
        return self.passes.largest

    def of_draft(self, drafted: int) -> float:
        if not drafted:
            return 0.0
        surcharge = (self.slowdown.factor - 1.0) * self.passes.relative(1 + drafted)
        return self.passes.of_draft(drafted) + surcharge


_ROUNDS, _FEWEST_ROUNDS = 7, 3
"""Most and fewest rounds that are measured. A guess; not measured."""

_SLOW_SECONDS = 0.5
"""Seconds of the target's pass from which one round suffices, so that it takes no minutes; noise
is small beside such passes. A guess; not measured."""

_SECONDS = 1.0
"""Time after which no further round begins, but for the fewest."""

_MOST_PASSES = 4096
"""Passes of the drafter during one of the target: a bound, so that they end whatever happens."""


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Factors by which passes take longer than alone, of the target and of the drafter."""

    target: float
    drafter: float


@dataclass(slots=True)
class _Timings:
    alone: list[float] = field(default_factory=list[float])
    at_once: list[float] = field(default_factory=list[float])

    @property
    def factor(self) -> float:
        """Median against median: unlike other programs, the other engine is there all the time.

        Not below 1: nobody is faster for the company.
        """
        return max(median(self.at_once) / median(self.alone), 1.0)


def measure_at_once(
    target: Context,
    drafter: Context,
    worker: Worker,
    tokens: Sequence[int],
    length: int,
    split: ThreadSplit | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> AtOnce:
    """What both take at once: the target over length tokens, the drafter over one after another.

    Alone, each has all threads; at once, those that split gives them. Rounds of both take turns, so
    that other load slows them alike. tokens: text, more than length. Both contexts are left empty.

    Raises:
        ModelError: an engine failed.
    """
    targets, drafters = _Timings(), _Timings()

    def verify(timings: list[float]) -> None:
        target.truncate(1)
        started = clock()
        target.forward(tokens[1 : 1 + length], length)
        timings.append(clock() - started)

    def both(verifying: list[float], drafting: list[float]) -> None:
        if split is not None:
            split.begin()
        try:
            worker.start(_drafting(drafter, tokens, drafting, clock))
            verify(verifying)
        finally:
            worker.stop()
            if split is not None:
                split.end()

    for context in (target, drafter):
        context.truncate(0)
        context.forward(tokens[:1], 1)
        context.checkpoint()  # a running state goes back to it, however far
    first: list[float] = []
    verify(first)
    is_slow = first[0] > _SLOW_SECONDS
    if not is_slow:
        both([], [])  # threads are started, and weights brought into memory
    started = clock()
    for count in range(_ROUNDS):
        if count >= (1 if is_slow else _FEWEST_ROUNDS) and clock() - started > _SECONDS:
            break
        verify(targets.alone)
        for _ in islice(_drafting(drafter, tokens, drafters.alone, clock), 2):
            pass
        both(targets.at_once, drafters.at_once)
    target.truncate(0)
    drafter.truncate(0)
    return AtOnce(targets.factor, drafters.factor)


def _drafting(
    drafter: Context, tokens: Sequence[int], timings: list[float], clock: Callable[[], float]
) -> Iterator[None]:
    """Passes over one token; timings gets the seconds of each."""
    for count in range(_MOST_PASSES):
        if drafter.length == drafter.n_ctx:
            drafter.truncate(1)
        started = clock()
        drafter.forward([tokens[count % len(tokens)]], 1)
        timings.append(clock() - started)
        yield


_RIGHT_AFTER_A_REJECTION = 0.4
"""Share of rejections after which the token is the drafter's next likeliest one. A guess; not
measured."""


def expected_hits(acceptance: Sequence[float], outcomes: int, after_all: float) -> float:
    """Probability that the outcome of a verification is among so many that are drafted for.

    acceptance: of each drafted token, given that all before it are accepted. after_all: that the
    drafter's likeliest token follows a draft that was accepted whole. Only the likeliest candidate
    of each position counts, which is on the safe side.
    """
    chances = kept_distribution(acceptance)
    hits = 0.0
    for outcome in islice(likeliest_outcomes(acceptance), outcomes):
        if outcome.rank == 0:
            is_whole = outcome.kept == len(acceptance)
            hits += chances[outcome.kept] * (after_all if is_whole else _RIGHT_AFTER_A_REJECTION)
    return hits


def expected_hidden(
    acceptance: Sequence[float], verification: float, draw: float, alone: float
) -> float:
    """Share of the drafting time that is hidden; less than 0 where waiting takes longer.

    verification: seconds of a pass of the target over a draft as long as acceptance. draw, alone:
    seconds of a pass of the drafter meanwhile, and alone. On average half a pass is waited for, and
    the first only finds the tokens that may follow the whole draft.
    """
    length = len(acceptance)
    if not length or draw <= 0.0 or alone <= 0.0:
        return 0.0
    passes = verification / draw
    outcomes = int(max(passes - 1.0, 0.0) // length)
    after_all = acceptance[-1]
    hits = expected_hits(acceptance, outcomes, after_all)
    if not outcomes:  # of the likeliest outcome, as many tokens as there is time for
        share = max(passes - 1.0, 0.0) / length
        hits = share * expected_hits(acceptance, 1, after_all)
    return hits - 0.5 * draw / (alone * length)


FREE = AtOnce(1.0, 1.0)
"""Two engines that do not slow each other."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected speedup over plain decoding, at the best length, and the hidden share there."""

    speedup: float
    length: int
    hidden: float


def predicted(
    acceptance: Sequence[float], costs: CostModel, draw_seconds: float, at_once: AtOnce | None
) -> Prediction:
    """The best fixed length of drafts made ahead; of drafts made in turn if at_once is None.

    acceptance: by position. draw_seconds: of a drafted token, alone. With c the cost of drafting a
    token and v(n) that of a pass over n, in plain steps, s the slowdown and h the hidden share, a
    round of length L takes s v(1+L) + (1-h) L c and brings 1 + sum of a_1...a_j tokens (Leviathan
    et al. 2023, arXiv 2211.17192, with h of expected_hidden).
    """
    plain = costs.seconds(1)
    best, expected, joint = Prediction(0.0, 0, 0.0), 1.0, 1.0
    slowdown = Slowdown(at_once.target if at_once else 1.0)
    passes = OverlappedPasses(costs, slowdown)
    for length, share in enumerate(acceptance[: costs.largest - 1], start=1):
        joint *= share
        expected += joint
        hidden = 0.0
        if at_once is not None:
            verification = costs.seconds(1 + length) * slowdown.factor
            draw = draw_seconds * at_once.drafter
            hidden = expected_hidden(acceptance[:length], verification, draw, draw_seconds)
        spent = 1.0 + passes.of_draft(length) + (1.0 - hidden) * length * draw_seconds / plain
        if expected / spent > best.speedup:
            best = Prediction(expected / spent, length, hidden)
    return best
