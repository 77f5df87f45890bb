"""Measures what passes over several tokens cost, before the first reply."""

import statistics
import time
from collections.abc import Callable, Sequence

from backends.base import Context
from decoding.cost import Measured

MOST_TOKENS = 16
"""The longest pass measured, and so the longest draft plus one."""

BUDGET_SECONDS = 0.9
"""Spent on repeating where a model is fast; the first rounds may take longer."""

_PLANS = (((2, 3, 4, 5, 8, 9, 16), 3), ((2, 4, 5, 8, 16), 2), ((2, 4, 16), 1), ((2, 4), 1))
"""Points and the least rounds, the most telling that time allows; kernels work in groups of 4."""

_SECONDS = 4.5
"""The least rounds may take this long on a slow model."""

_SLOW_SECONDS = 1.0
"""A model that takes longer for a token is timed on the fewest passes, once each."""

_FEW = (2, 4)
_DEAR = 0.75
"""Cost of each token of a pass, in tokens, from which longer ones are not looked at."""

_MOST_SWITCHING = 0.2
_GUESSED_SLOPE = 0.45
"""Cost of each further token in tokens, to choose the points by."""


def calibrate(
    context: Context,
    tokens: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Seconds of a target pass by its number of tokens: medians of a few rounds.

    Each pass follows one over a single token, as while decoding: it finds the caches as that left
    them. tokens: ordinary text of at least 2 * MOST_TOKENS tokens. The context is left empty.

    Raises:
        ModelError: the engine failed.
    """
    most = min(MOST_TOKENS, context.n_chunk, context.max_logits, context.n_ctx - 1)

    def timed(n: int) -> float:
        context.truncate(1)
        started = clock()
        context.forward(tokens[1 : 1 + n], n)
        return clock() - started

    context.truncate(0)
    context.forward(tokens[:1], 1)  # brings the weights into memory
    started = clock()
    first = timed(1)
    if first > _SLOW_SECONDS:
        found = _few(first, most, timed)
        context.truncate(0)
        return Measured(found)
    single = timed(1)
    points, rounds = _plan(single, most)
    times: dict[int, list[float]] = {1: [single]}
    after_longer: list[float] = []
    done = 0
    while done < rounds or (clock() - started) * (done + 1) / done < BUDGET_SECONDS:
        for n in points:
            after_longer.append(timed(1))
            times[1].append(timed(1))
            times.setdefault(n, []).append(timed(n))
        done += 1
    context.truncate(0)
    seconds = {n: statistics.median(found) for n, found in times.items()}
    switching = statistics.median(after_longer) / seconds[1] - 1.0
    return Measured(seconds, min(max(switching, 0.0), _MOST_SWITCHING))


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
