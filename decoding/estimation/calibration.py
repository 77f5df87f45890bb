"""Calibration: measures the cost of passes over several tokens, before the first reply."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from backends.base import BlockContext, PassStoppedError
from backends.base.model import reads_of_one_token
from decoding.draft import MOST_DRAFTED
from decoding.estimation.cost import WIDTHS, Measured


class BlockPasses:
    """Blocks of so many tokens after reading one; if reads, blocks of one after reading so many.

    Only a block shows what reading before it takes, as engines may go on meanwhile.
    """

    def __init__(self, context: BlockContext, reads: bool) -> None:
        self._context, self._reads = context, reads
        self.n_ctx, self.n_chunk = context.n_ctx, context.n_chunk
        self.max_rollback = context.max_rollback
        self.max_logits = context.n_chunk if reads else context.longest
        """Longest pass of the kind that is timed."""
        self.truncate, self.checkpoint = context.truncate, context.checkpoint

    @property
    def length(self) -> int:
        return self._context.length

    def forward(self, tokens: Sequence[int], n_logits: int) -> object:
        """Read one token, or all of these, and draft."""
        self._context.forward(tokens if self._reads else tokens[:1], 0)
        return self._context.draft(1 if self._reads else n_logits)


AGREEING = 0.08
"""Relative difference up to which two passes of one length agree. A guess; not measured."""


def combined(earlier: Measured, later: Measured) -> Measured:
    """The fastest pass of each length in two measurements.

    It is certain if its measurement was, or if the other one agrees.
    """
    seconds: dict[int, float] = {}
    unsure: dict[int, float] = {}
    for n in sorted(earlier.seconds.keys() | later.seconds.keys()):
        passes = sorted(
            (measured.seconds[n], measured.unsure.get(n, 0.0))
            for measured in (earlier, later)
            if n in measured.seconds
        )
        seconds[n], doubt = passes[0]
        if doubt > 0.0 and len(passes) > 1:
            apart = passes[1][0] / seconds[n] - 1.0
            doubt = apart if apart > AGREEING else 0.0
        if doubt > 0.0:
            unsure[n] = doubt
    steadier = min(later, earlier, key=lambda measured: measured.spread)
    load = min(earlier.load, later.load)
    changes = {
        n: min(later.changes[n], earlier.changes.get(n, later.changes[n])) for n in later.changes
    }
    held = {**earlier.held, **later.held}
    return Measured(seconds, steadier.switching, unsure, load, later.expert_share, changes, held)


USUAL_TOKENS = 16
"""Longest measured pass if it takes several plain steps, as on processors; the end of the
plans below."""

MOST_TOKENS = 1 + MOST_DRAFTED
"""Longest pass that is ever measured: as many sequences cost llama.cpp no more time or memory than
16."""

_FLAT = 3.0
"""Plain steps; if the longest pass so far takes less, one twice as long is timed too, as on GPUs. A
guess; not measured."""

BUDGET_SECONDS = 0.9
"""Time spent on rounds with a fast model, about a second at the first load. Not measured."""

_PLANS = (((2, 3, 4, 5, 8, 9, 16), 3), ((2, 4, 5, 8, 16), 2), ((2, 4, 16), 1))
"""Lengths and least rounds, best first; the first plan that fits the time is used. Kernels work in
groups of 4, so the curve has steps there."""

_SECONDS = 4.5
"""Longest time of the least rounds and repetitions on a slow model. A guess; not measured."""

_REPEATING = 0.6
"""Share of the time of all rounds that repeating disturbed lengths may add. A guess; not
measured."""

_QUIET = 0.2
"""Relative excess of the plain step before a pass that shows another program at work. A guess; not
measured."""

_LENGTHS = (2, 4, 8, 16, 32, MOST_TOKENS)
"""Lengths of which a model too slow for any plan is timed on a few, once each, and others on the
longer ones while their curve is flat."""

_COSTLY = 0.75
"""Cost per token of a pass, in plain steps, above which a slow model's longer passes are not timed,
as no draft would pay. A guess; not measured."""

_MOST_EXPERT_STEPS = 8.0
"""Plain steps that one long pass of a streamed mixture of experts may take to be timed: what all of
its experts cost if a token uses an eighth of them. A guess; not measured."""

_WORTHWHILE_SHARE = 0.25
"""Expected cost per token of such a pass, in plain steps, up to which it is timed. A guess; not
measured."""

_VERY_SLOW_SECONDS = 1.0
"""Seconds per token above which a costly pass over 2 tokens suffices, though one over 4, a whole
group, may cost less per token. A guess; not measured."""

_MOST_SWITCHING = 0.2
"""Largest extra cost of a plain step after a longer pass that is believed; more is noise. A guess;
not measured."""

_RUN = 6
"""Passes of a run: the first two are not replayed (docs/speed/on-a-gpu.md)."""

_COSTLY_CHANGE = 0.1
"""Cost of a change to single tokens, in plain steps, that is believed; less is noise. The least on
an H100 was 0.3, and 0.12 where the engine keeps a recording of each width."""

_HELD_WIDTHS = (1, 2, 4, 8, 9, 16, 32)
"""Tokens of passes that are timed after many tokens held, with the most of all; kernels of
attention for few tokens often end at 8 (ml-explore/mlx#3826)."""

_HELD_ROUNDS = 3
"""Passes of each; the two fastest are to agree. A guess; not measured."""

_GUESSED_SLOPE = 0.45
"""Expected cost of each further token, in plain steps, to estimate how long a plan takes; measured
slopes are 0.3 to 0.9 on two cores."""


class PassFacts(Protocol):
    """Limits of passes, as of a context."""

    @property
    def n_ctx(self) -> int: ...
    @property
    def n_chunk(self) -> int: ...
    @property
    def max_logits(self) -> int: ...
    @property
    def max_rollback(self) -> int: ...
    @property
    def length(self) -> int: ...


class Passes(PassFacts, Protocol):
    """Passes that are timed: of a context, or what a drafter does in their place."""

    def forward(self, tokens: Sequence[int], n_logits: int) -> object: ...
    def truncate(self, length: int) -> None: ...
    def checkpoint(self, *, is_brief: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class _Pass:
    seconds: float
    step_before: float


@dataclass(slots=True)
class _Text:
    """Text that is read piece by piece, from its start again where the rest is too short."""

    tokens: Sequence[int]
    at: int = 0

    def take(self, n: int) -> Sequence[int]:
        """The next n tokens."""
        if self.at + n > len(self.tokens):
            self.at = 0
        self.at += n
        return self.tokens[self.at - n : self.at]


@dataclass(slots=True)
class _Timings:
    """Timings so far. after_longer: plain steps that followed a pass over several tokens."""

    steps: list[float] = field(default_factory=list[float])
    after_longer: list[float] = field(default_factory=list[float])
    passes: dict[int, list[_Pass]] = field(default_factory=dict[int, list[_Pass]])

    @property
    def seconds(self) -> dict[int, float]:
        """Seconds by number of tokens: the fastest, as other programs only ever add time.

        For plain steps, which are many, the lower quartile: their fastest would be a lucky one.
        """
        fastest = {n: min(timing.seconds for timing in timed) for n, timed in self.passes.items()}
        return {1: _quartile(self.steps), **fastest}

    @property
    def unsure(self) -> dict[int, float]:
        """Lengths whose timings disagree, with the relative difference."""
        seconds = self.seconds
        slow = _above(_QUIET, max(self.steps) / seconds[1] - 1.0)
        unsure = {
            n: slow if len(timed) == 1 else _disagreement(timed, seconds[1])
            for n, timed in self.passes.items()
        }
        return {n: share for n, share in unsure.items() if share > 0.0}

    @property
    def switching(self) -> float:
        """Extra cost of a plain step after a pass over several tokens, in plain steps."""
        extra = _quartile(self.after_longer) / _quartile(self.steps) - 1.0
        return min(max(extra, 0.0), _MOST_SWITCHING)


def calibrate(
    context: Passes,
    tokens: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
    expert_share: float = 0.0,
    is_wanted: Callable[[], bool] = lambda: True,
    *,
    on_gpu: bool = False,
) -> Measured:
    """Seconds of a target pass by its number of tokens: the fastest of a few rounds.

    Each pass follows one over a single token, which leaves the caches as while decoding. Disturbed
    lengths are repeated while there is time. A slow model, such as one that is read from disk, is
    timed on one pass of each of a few lengths, which are as long as its curve is flat. tokens:
    ordinary text of at least 2 * MOST_TOKENS tokens. The context is left empty.

    Every pass goes on in the text: with experts, a pass costs what those cost that its tokens
    choose, and the tokens of the pass before would find theirs in memory. expert_share: as in
    Measured. is_wanted: asked before each pass. on_gpu: whether all passes run on a GPU, whose
    engine may record them; processors record nothing.

    Raises:
        ModelError: the engine failed.
        PassStoppedError: is_wanted returned False.
    """
    most = _most(context)
    text = _Text(tokens)
    context.truncate(0)
    started = clock()
    context.forward(text.take(1), 1)  # brings the weights into memory, if they stay there
    context.checkpoint()
    loading = clock() - started
    timed = _after(context, text, clock, is_wanted)
    started = clock()
    first = min(timed(1), loading)
    if _is_slow(first):
        found = Measured(_few(first, most, timed, expert_share))
    else:
        in_runs = _in_runs(timed, most) if on_gpu else None
        found = in_runs or _in_rounds(timed, most, clock, started)
    context.truncate(0)
    return replace(found, expert_share=expert_share)


def _after(
    context: Passes, text: _Text, clock: Callable[[], float], is_wanted: Callable[[], bool]
) -> Callable[[int], float]:
    """What times a pass over so many tokens after what a context holds at present."""
    length = context.length

    def timed(n: int) -> float:
        if not is_wanted():
            raise PassStoppedError
        context.truncate(length)
        following = text.take(n)
        started = clock()
        context.forward(following, n)
        return clock() - started

    return timed


def calibrate_held(
    context: Passes,
    empty: Passes,
    known: Measured,
    tokens: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Mapping[int, float] | None:
    """What passes take longer after what a context holds than in an empty one: as in Held.

    Passes of both take turns, so that a load is part of both. None if timings disagree: other
    programs run. known: of the same model. tokens, is_wanted: as of calibrate. The context holds
    the same in the end.

    Raises:
        ModelError: the engine failed.
        PassStoppedError: is_wanted returned False.
    """
    text, length, longest = _Text(tokens), context.length, max(known.seconds)
    room = min(_most(context), _most(empty), context.n_ctx - length)
    widths = [n for n in sorted({*_HELD_WIDTHS, longest} & known.seconds.keys()) if n <= room]
    run = 3 if known.changes else 1  # the first two are not replayed
    context.checkpoint(is_brief=True)
    empty.forward(text.take(1), 1)
    empty.checkpoint()
    both = [_after(one, text, clock, is_wanted) for one in (context, empty)]
    timings: dict[int, tuple[list[float], list[float]]] = {n: ([], []) for n in widths}
    try:
        for _ in range(_HELD_ROUNDS):
            for n, seconds in timings.items():
                for timed, found in zip(both, seconds, strict=True):
                    found.append([timed(n) for _ in range(run)][-1])
    finally:
        context.truncate(length)
    if any(_apart(found) > AGREEING for seconds in timings.values() for found in seconds):
        return None
    plain = min(timings[1][1])
    return {n: max(min(deep) - min(short), 0.0) / plain for n, (deep, short) in timings.items()}


def _apart(timed: Sequence[float]) -> float:
    """Relative difference of the two fastest."""
    first, second = sorted(timed)[:2]
    return second / first - 1.0


def _in_rounds(
    timed: Callable[[int], float], most: int, clock: Callable[[], float], started: float
) -> Measured:
    """Seconds of passes that take turns with single tokens; disturbed ones are repeated."""
    timings = _Timings()

    def add(n: int) -> None:
        timings.after_longer.append(timed(1))
        step = timed(1)
        timings.steps.append(step)
        timings.passes.setdefault(n, []).append(_Pass(timed(n), step))

    timings.steps.append(timed(1))
    points, rounds = _plan(timings.steps[0], most)
    done = 0
    while done < rounds or (clock() - started) * (done + 1) / done < BUDGET_SECONDS:
        for n in points:
            add(n)
        done += 1
    while longer := _longer(timings.seconds, most):
        for _ in range(rounds):
            add(longer)
    used = clock() - started
    latest = started + max(used, min((1.0 + _REPEATING) * used, _SECONDS))
    while (unsure := timings.unsure) and clock() < latest:
        for n in sorted(unsure):
            add(n)
    return Measured(timings.seconds, timings.switching, timings.unsure)


def _in_runs(timed: Callable[[int], float], most: int) -> Measured | None:
    """Seconds of passes in runs of one width, and what changes cost; None if they cost nothing.

    Runs of each width and of single tokens take turns. Each is timed twice, since the very first
    passes of a width load kernels.
    """
    widths = [width for width in WIDTHS if width <= most]
    if len(widths) < 2 or not all(_change_costs(timed) for _ in range(3)):
        return None
    steady = dict.fromkeys(widths, math.inf)
    starts = dict.fromkeys(widths, math.inf)

    for longer in widths[1:]:
        for width in (longer, 1) * 2:
            first, second, *rest = (timed(width) for _ in range(_RUN))
            steady[width] = min(steady[width], _quartile(rest))
            starts[width] = min(starts[width], first + second)
        if starts[1] < (2.0 + _COSTLY_CHANGE) * steady[1]:
            return None
    changes = {n: max(starts[n] - 2.0 * steady[n], 0.0) for n in widths}
    return Measured(steady, changes=changes)


def _change_costs(timed: Callable[[int], float]) -> bool:
    """Whether the first two plain steps after a longer pass take longer than those after them."""
    timed(2)
    first, second, *later = (timed(1) for _ in range(_RUN))
    return first + second > (2.0 + _COSTLY_CHANGE) * _quartile(later)


def ends_early(seconds: Mapping[int, float], context: PassFacts, expert_share: float = 0.0) -> bool:
    """Whether a curve of seconds by number of tokens is so flat that longer passes are missing."""
    most = _most(context)
    if _is_slow(seconds[1]):
        return _following(seconds, most, expert_share) is not None
    return _longer(seconds, most) is not None


def _longer(seconds: Mapping[int, float], most: int) -> int | None:
    """Tokens of a longer pass to be measured, if the longest so far is cheap; None if not."""
    longest = max(seconds)
    is_flat = longest >= USUAL_TOKENS and seconds[longest] < _FLAT * seconds[1]
    return next((n for n in _LENGTHS if longest < n <= most), None) if is_flat else None


def _most(context: PassFacts) -> int:
    longest = min(MOST_TOKENS, context.n_chunk, context.max_logits, context.n_ctx - 1)
    return min(longest, 1 + context.max_rollback) if context.max_rollback else longest


def _quartile(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 4]


def _disagreement(timed: Sequence[_Pass], step: float) -> float:
    """Relative difference of the fastest two, or of slow steps before both; 0 if they agree."""
    apart = _apart([timing.seconds for timing in timed])
    first, second = sorted(timed, key=lambda timing: timing.seconds)[:2]
    slow = min(first.step_before, second.step_before) / step - 1.0
    return max(_above(AGREEING, apart), _above(_QUIET, slow))


def _above(limit: float, share: float) -> float:
    return share if share > limit else 0.0


def _few(
    single: float, most: int, timed: Callable[[int], float], expert_share: float
) -> dict[int, float]:
    """Seconds of longer and longer passes, until they save too little."""
    seconds = {1: single}
    while n := _following(seconds, most, expert_share):
        seconds[n] = timed(n)
    return seconds


def _following(seconds: Mapping[int, float], most: int, expert_share: float) -> int | None:
    """The next length to time on a slow model; None if the longest so far saves too little.

    A flat curve tells as much in one long pass as in many short ones: it is the longest that is
    expected to take less than _FLAT plain steps, by the mean slope so far. The first is the
    shortest, which costs least where the curve is steep.
    """
    single, longest = seconds[1], max(seconds)
    lengths = [n for n in _LENGTHS if longest < n <= most]
    if longest == 1:
        return lengths[0] if lengths else None
    if expert_share:
        return _following_with_experts(seconds, lengths, expert_share)
    if seconds[longest] > _COSTLY * longest * single:
        may_be_cheaper = longest == _LENGTHS[0] and single <= _VERY_SLOW_SECONDS
        return min(lengths, default=None) if may_be_cheaper else None
    slope = max(seconds[longest] / single - 1.0, 0.0) / (longest - 1)
    return max((n for n in lengths if 1.0 + slope * (n - 1) < _FLAT), default=None)


def _following_with_experts(
    seconds: Mapping[int, float], lengths: Sequence[int], expert_share: float
) -> int | None:
    """The longest of the lengths that may pay; None if none is expected to.

    A mixture of experts costs about as much per token in short passes as alone, and no more than
    all its experts in long ones: the experts that passes read take the place of their tokens.
    """
    single, longest = seconds[1], max(seconds)
    extra = max(seconds[longest] / single - 1.0, 0.0)
    slope = extra / (reads_of_one_token(expert_share, longest) - 1.0)

    def may_pay(n: int) -> bool:
        expected = 1.0 + slope * (reads_of_one_token(expert_share, n) - 1.0)
        is_saving = expected < min(_MOST_EXPERT_STEPS, _WORTHWHILE_SHARE * n)
        return is_saving or expected < _FLAT

    return max(filter(may_pay, lengths), default=None)


def _is_slow(single: float) -> bool:
    """Whether no plan fits the time; single: seconds of a plain step."""
    return _seconds(single, *_PLANS[-1]) > _SECONDS


def _plan(single: float, most: int) -> tuple[list[int], int]:
    """The lengths beyond 1, and the least number of rounds."""
    fitting = (plan for plan in _PLANS if _seconds(single, *plan) <= _SECONDS)
    points, rounds = next(fitting, _PLANS[-1])
    return sorted({min(n, most) for n in points} - {1}), rounds


def _seconds(single: float, points: Sequence[int], rounds: int) -> float:
    """Expected seconds of a plan."""
    return rounds * single * sum(3 + _GUESSED_SLOPE * (n - 1) for n in points)
