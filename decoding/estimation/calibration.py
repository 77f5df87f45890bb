"""Measures what passes over several tokens cost, before the first reply."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from backends.base import Context, ContextFacts
from decoding.estimation.combined_measurements import AGREEING, contradictions
from decoding.estimation.cost import Measured

USUAL_TOKENS = 16
"""The longest pass measured where it takes several plain steps, as on processors."""

MOST_TOKENS = 64
"""The longest pass measured at all, and so the longest draft plus one."""

_FLAT = 3.0
"""Plain steps; where the longest pass so far takes less, one over twice as many tokens may pay."""

BUDGET_SECONDS = 0.9
"""Spent on rounds where a model is fast; the least rounds may take longer."""

_PLANS = (((2, 3, 4, 5, 8, 9, 16), 3), ((2, 4, 5, 8, 16), 2), ((2, 4, 16), 1), ((2, 4), 1))
"""Points and the least rounds, the most telling that time allows; kernels work in groups of 4."""

_SECONDS = 4.5
"""The least rounds may take this long on a slow model, with what is repeated after them."""

_REPEATING = 0.6
"""Of the time of all rounds, what may be added for points that noise has touched."""

_QUIET = 0.2
"""By which the plain step before a pass may exceed the usual one: another program was at work."""

_SLOW_SECONDS = 1.0
"""A model that takes longer for a token is timed on the fewest passes, once each."""

_FEW = (2, 4)
_DEAR = 0.75
"""Cost of each token of a pass, in tokens, from which longer ones are not looked at."""

_MOST_SWITCHING = 0.2
_GUESSED_SLOPE = 0.45
"""Cost of each further token in tokens, to choose the points by."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """Seconds of a pass over several tokens, and of the plain step before it."""

    seconds: float
    step_before: float


@dataclass(slots=True)
class _Timings:
    """What was timed so far. after_longer: plain steps that followed a pass over several tokens."""

    steps: list[float] = field(default_factory=list[float])
    after_longer: list[float] = field(default_factory=list[float])
    passes: dict[int, list[_Pass]] = field(default_factory=dict[int, list[_Pass]])

    @property
    def seconds(self) -> dict[int, float]:
        """Seconds by number of tokens. Other programs only ever add time: the fastest count.

        Of plain steps, which are many, the lower quartile: their fastest would be luckier.
        """
        fastest = {n: min(one.seconds for one in timed) for n, timed in self.passes.items()}
        return {1: _quartile(self.steps), **fastest}

    @property
    def unsure(self) -> dict[int, float]:
        """Points that another program has touched, by how much as far as the timings show."""
        seconds = self.seconds
        slow = _above(_QUIET, max(self.steps) / seconds[1] - 1.0)
        found = {
            n: slow if len(timed) == 1 else _disagreement(timed, seconds[1])
            for n, timed in self.passes.items()
        }
        for longer, shorter, share in contradictions(seconds):
            for n in {longer, shorter} & self.passes.keys():
                found[n] = max(found[n], share)
        return {n: share for n, share in found.items() if share > 0.0}

    @property
    def switching(self) -> float:
        """What a step takes longer after a pass over several tokens, in plain steps."""
        found = _quartile(self.after_longer) / _quartile(self.steps) - 1.0
        return min(max(found, 0.0), _MOST_SWITCHING)


def calibrate(
    context: Context,
    tokens: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Seconds of a target pass by its number of tokens: the fastest of a few rounds.

    Each pass follows one over a single token, as while decoding: it finds the caches as that left
    them. What other programs have touched is repeated while there is time. tokens: ordinary text
    of at least 2 * MOST_TOKENS tokens. The context is left empty.

    Raises:
        ModelError: the engine failed.
    """
    most = _most(context)
    timings = _Timings()

    def timed(n: int) -> float:
        context.truncate(1)
        started = clock()
        context.forward(tokens[1 : 1 + n], n)
        return clock() - started

    def add(n: int) -> None:
        timings.after_longer.append(timed(1))
        step = timed(1)
        timings.steps.append(step)
        timings.passes.setdefault(n, []).append(_Pass(timed(n), step))

    context.truncate(0)
    context.forward(tokens[:1], 1)  # brings the weights into memory
    started = clock()
    first = timed(1)
    if first > _SLOW_SECONDS:
        found = _few(first, most, timed)
        context.truncate(0)
        return Measured(found)
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
    context.truncate(0)
    return Measured(timings.seconds, timings.switching, timings.unsure)


def ends_early(seconds: Mapping[int, float], context: ContextFacts) -> bool:
    """Whether a curve, seconds by number of tokens, is too flat to end where it does."""
    return _longer(seconds, _most(context)) is not None


def _longer(seconds: Mapping[int, float], most: int) -> int | None:
    """The tokens of a pass still to be measured, if the longest so far took little."""
    longest = max(seconds)
    is_flat = longest >= USUAL_TOKENS and seconds[longest] < _FLAT * seconds[1]
    return 2 * longest if is_flat and 2 * longest <= most else None


def _most(context: ContextFacts) -> int:
    return min(MOST_TOKENS, context.n_chunk, context.max_logits, context.n_ctx - 1)


def _quartile(seconds: Sequence[float]) -> float:
    """The lower one."""
    return sorted(seconds)[len(seconds) // 4]


def _disagreement(timed: Sequence[_Pass], step: float) -> float:
    """By which the fastest two differ, or steps before both were slow; 0 where they agree."""
    first, second = sorted(timed, key=lambda one: one.seconds)[:2]
    apart = second.seconds / first.seconds - 1.0
    slow = min(first.step_before, second.step_before) / step - 1.0
    return max(_above(AGREEING, apart), _above(_QUIET, slow))


def _above(limit: float, share: float) -> float:
    """The share, 0 up to the limit."""
    return share if share > limit else 0.0


def _few(single: float, most: int, timed: Callable[[int], float]) -> dict[int, float]:
    """Seconds of passes over more and more tokens, until they save too little."""
    found = {1: single}
    for n in (n for n in _FEW if n <= most):
        found[n] = timed(n)
        if found[n] > _DEAR * n * single:
            break
    return found


def _plan(single: float, most: int) -> tuple[list[int], int]:
    """The points beyond 1, and the least number of rounds."""

    def seconds(points: Sequence[int], rounds: int) -> float:
        return rounds * single * sum(3 + _GUESSED_SLOPE * (n - 1) for n in points)

    fitting = (plan for plan in _PLANS if seconds(*plan) <= _SECONDS)
    points, rounds = next(fitting, _PLANS[-1])
    return [n for n in points if n <= most], rounds
