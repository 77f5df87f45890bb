"""What both take at once is measured: against each alone, by the median, and with all undone."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.base import ModelError
from decoding.overlap.overlap_cost import measure_at_once
from tests.fixtures.simulator import Clock
from tests.fixtures.workers import StepwiseWorker

N_VOCAB = 6
TOKENS = [token % N_VOCAB for token in range(40)]


class Division:
    """What a division of threads does, on the clock of two engines: both are slower."""

    def __init__(self, clock: Clock) -> None:
        self.is_divided = False
        self.clock = clock

    def begin(self) -> None:
        self.is_divided = True

    def end(self) -> None:
        self.is_divided = False


@pytest.fixture
def timed(
    table: Callable[..., NDArray[np.float32]], fake_context: Callable[..., Any]
) -> Callable[..., Any]:
    """A context whose passes take seconds on the clock; slower while threads are divided."""

    def make(division: Division, seconds: float, slower: float, n_ctx: int = 64) -> Any:
        context = fake_context(table(1, N_VOCAB), n_ctx=n_ctx)
        forward = context.forward

        def slow(tokens: Sequence[int], n_logits: int) -> Any:
            factor = slower if division.is_divided else 1.0
            division.clock.now += seconds * factor
            return forward(tokens, n_logits)

        context.forward = slow
        return context

    return make


def test_it_is_how_much_longer_passes_take_than_alone(timed: Callable[..., Any]) -> None:
    division = Division(clock := Clock())
    target, drafter = timed(division, 0.1, 1.5), timed(division, 0.01, 1.75, n_ctx=4)
    worker = StepwiseWorker(9)
    found = measure_at_once(target, drafter, worker, TOKENS, 5, division, clock)  # type: ignore[arg-type]
    assert found.target == pytest.approx(1.5)
    assert found.drafter == pytest.approx(1.75)
    assert not division.is_divided
    assert target.length == drafter.length == 0
    assert worker.rounds > 3


def test_one_interruption_changes_nothing(timed: Callable[..., Any]) -> None:
    division = Division(clock := Clock())
    target, drafter = timed(division, 0.1, 1.2), timed(division, 0.01, 1.0)
    forward, passes = target.forward, [0]

    def interrupted(tokens: Sequence[int], n_logits: int) -> Any:
        passes[0] += 1
        clock.now += 0.3 if passes[0] == 6 else 0.0
        return forward(tokens, n_logits)

    target.forward = interrupted
    worker = StepwiseWorker(9)
    found = measure_at_once(target, drafter, worker, TOKENS, 5, division, clock)  # type: ignore[arg-type]
    assert (found.target, found.drafter) == pytest.approx((1.2, 1.0))


def test_a_slow_target_is_measured_once(timed: Callable[..., Any]) -> None:
    division = Division(clock := Clock())
    target, drafter = timed(division, 4.0, 1.0), timed(division, 0.1, 1.0)
    worker = StepwiseWorker(9)
    measure_at_once(target, drafter, worker, TOKENS, 5, division, clock)  # type: ignore[arg-type]
    assert worker.rounds == 1


def test_a_fault_leaves_nothing_running_and_threads_undivided(timed: Callable[..., Any]) -> None:
    division = Division(clock := Clock())
    target, drafter = timed(division, 0.1, 1.0), timed(division, 0.01, 1.0)
    worker, forward = StepwiseWorker(9), target.forward

    def failing(tokens: Sequence[int], n_logits: int) -> Any:
        if division.is_divided:
            raise ModelError("the engine failed", "it was told to")
        return forward(tokens, n_logits)

    target.forward = failing
    with pytest.raises(ModelError, match="the engine failed"):
        measure_at_once(target, drafter, worker, TOKENS, 5, division, clock)  # type: ignore[arg-type]
    assert not division.is_divided
    assert worker._round is None


def test_a_target_with_a_running_state_is_measured_too(
    table: Callable[..., NDArray[np.float32]], fake_context: Callable[..., Any]
) -> None:
    """Its snapshots reach back to no more than its last pass, and it is taken back further."""
    target, drafter = (fake_context(table(1, N_VOCAB), depth=2) for _ in range(2))
    worker = StepwiseWorker(70)  # more than the drafter's context holds
    ticks = iter(range(1 << 30))
    found = measure_at_once(target, drafter, worker, TOKENS, 5, clock=lambda: next(ticks) / 4)
    assert (found.target, found.drafter) == (1.0, 1.0)
    assert worker.rounds > 3
    assert target.length == drafter.length == 0
