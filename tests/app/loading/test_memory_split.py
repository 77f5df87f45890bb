"""The division of memory between weights and a drafter, against enumeration."""

import itertools
from collections.abc import Callable, Sequence
from math import isclose

import pytest

from app.drafting.choose.memory_choice import best_split
from app.loading.pass_time import Contender
from decoding.draft import MOST_DRAFTED

MEGABYTE = 1_000_000
SMALL = Contender("small", 90 * MEGABYTE, 0.006, 0.6)
GOOD = Contender("good", 400 * MEGABYTE, 0.03, 0.85)
USELESS = Contender("useless", 90 * MEGABYTE, 0.006, 0.0)


def _machine(disk: float, budget: int, weights: int) -> Callable[[int, int], float]:
    """Passes that read all weights but those held, and compute each token for 10 ms."""

    def seconds(drafter_bytes: int, n_tokens: int) -> float:
        return max(weights - budget + drafter_bytes, 0) / disk + 0.03 + 0.01 * n_tokens

    return seconds


def _rate(one: Contender | None, length: int, seconds: Callable[[int, int], float]) -> float:
    """Tokens a second, by enumerating which drafted tokens are accepted."""
    if one is None:
        return 1.0 / seconds(0, 1)
    expected = 0.0
    for accepted in range(length + 1):
        ends = 1.0 if accepted == length else 1.0 - one.acceptance
        expected += (accepted + 1) * one.acceptance**accepted * ends
    return expected / (seconds(one.memory_bytes, length + 1) + length * one.draw_seconds)


@pytest.mark.parametrize("disk", [0.2e9, 1.1e9, 5e9])
@pytest.mark.parametrize("budget", [50 * MEGABYTE, 300 * MEGABYTE, 700 * MEGABYTE])
@pytest.mark.parametrize("weights", [1200 * MEGABYTE, 600 * MEGABYTE])
@pytest.mark.parametrize(
    "contenders", [(), (SMALL,), (GOOD, SMALL), (USELESS, GOOD), (SMALL, GOOD, USELESS)]
)
def test_no_other_division_is_faster(
    disk: float, budget: int, weights: int, contenders: Sequence[Contender]
) -> None:
    seconds = _machine(disk, budget, weights)
    found = best_split(contenders, seconds, budget)
    fitting = [one for one in contenders if one.memory_bytes <= budget]
    every = itertools.product(fitting, range(1, 1 + MOST_DRAFTED))
    rates = [_rate(None, 0, seconds), *(_rate(*one, seconds) for one in every)]
    assert isclose(found.rate, max(rates), rel_tol=1e-9)
    lengths = range(1, 1 + MOST_DRAFTED) if found.drafter else (0,)
    best = max(_rate(found.drafter, length, seconds) for length in lengths)
    assert isclose(found.rate, best, rel_tol=1e-9)
