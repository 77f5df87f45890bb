"""Measures what passes over several tokens cost, before the first reply."""

import time
from collections.abc import Callable, Sequence

from backends.base import Context

MOST_TOKENS = 16
"""The longest pass measured, and so the longest draft plus one."""

BUDGET_SECONDS = 0.9
"""Spent on repeating where a model is fast; the first two rounds may take longer."""

_TWO_ROUNDS_SECONDS = 3.6
_POINTS = (
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16),
    (1, 2, 3, 4, 6, 8, 12, 16),
    (1, 2, 4, 8, 16),
    (1, 2, 4),
)
"""Choices of points, the most telling that time allows; kernels work in groups of 4 and 8."""

_GUESSED_SLOPE = 0.35
"""Cost of each further token in tokens, to choose the points by."""


def calibrate(
    context: Context,
    tokens: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Seconds of a target pass by its number of tokens: the least of equally many rounds.

    tokens: ordinary text of at least 2 * MOST_TOKENS tokens. The context is left empty.

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
    points = _points(min(timed(1), timed(1)), most)
    best = {n: timed(n) for n in points}
    rounds = 1
    least_rounds = 2 if len(points) > len(_POINTS[-1]) else 1
    while rounds < least_rounds or clock() - started + sum(best.values()) < BUDGET_SECONDS:
        rounds += 1
        for n in points:
            best[n] = min(best[n], timed(n))
    context.truncate(0)
    return best


def _points(single: float, most: int) -> list[int]:
    """The largest choice of points whose two first rounds are short enough."""

    def guess(choice: Sequence[int]) -> float:
        return 2 * single * sum(1 + _GUESSED_SLOPE * (n - 1) for n in choice)

    fitting = (choice for choice in _POINTS if guess(choice) <= _TWO_ROUNDS_SECONDS)
    return [n for n in next(fitting, _POINTS[-1]) if n <= most]
