"""Blocks in a simulated machine: their length is decided before they are drafted."""

import pytest

from tests.fixtures.simulated_text import bursts, constant
from tests.fixtures.simulator import CURVES, CostlyDrafter, Machine

WARM, STEPS = 300, 1300
BLOCK = 15
COSTS = [(0.0, 0.1), (0.1, 0.1)]


def machine(share: float | None, shape: str, draw: float, begin: float, seed: int = 0) -> Machine:
    right = bursts(300, seed) if share is None else constant(share, seed)
    return Machine(
        right, CURVES[shape], draw_cost=draw, begin_cost=begin, block=BLOCK, seed=seed, noise=0.03
    )


@pytest.mark.parametrize("shape", ["flat", "stepped"])
@pytest.mark.parametrize(
    ("draw", "begin"),
    [(0.02, 0.1), *(pytest.param(*cost, marks=pytest.mark.slow) for cost in COSTS)],
)
@pytest.mark.parametrize("share", [0.6, pytest.param(0.95, marks=pytest.mark.slow), None])
def test_regret_against_the_best_fixed_length_is_small(
    shape: str, share: float | None, draw: float, begin: float
) -> None:
    blocks = machine(share, shape, draw, begin)
    log = blocks.run(steps=STEPS)
    assert log.speedup(WARM) >= 0.96 * blocks.best_fixed(log, WARM, draw)


@pytest.mark.parametrize("shape", ["stepped", "linear", "mixture"])
@pytest.mark.parametrize("share", [0.02, 0.2, 0.4])
@pytest.mark.parametrize(("draw", "begin"), [(0.0, 0.5), (0.1, 0.2)])
def test_where_nothing_pays_it_is_as_fast_as_plain(
    shape: str, share: float, draw: float, begin: float
) -> None:
    for tokens in (150, 1000):
        assert machine(share, shape, draw, begin).run(tokens=tokens).speedup() >= 0.98


def test_what_is_drafted_is_what_was_planned() -> None:
    """Nothing that a shorter block would have saved is left unused."""
    blocks = machine(0.8, "stepped", 0.1, 0.1)
    log = blocks.run(steps=STEPS)
    drafter = blocks.drafter
    assert isinstance(drafter, CostlyDrafter)
    assert max(log.drafted) <= BLOCK
    assert drafter.unused <= 0.02 * sum(log.drafted)


def test_the_cost_of_blocks_follows_the_machine() -> None:
    blocks = machine(0.9, "flat", 0.02, 0.1)
    blocks.run(steps=300)
    cost = blocks.controller.drafters[0].cost
    assert cost is not None
    before = cost.seconds(4, 1)
    assert isinstance(blocks.drafter, CostlyDrafter)
    blocks.drafter.slower = 2.0
    blocks.run(steps=300)
    assert cost.seconds(4, 1) == pytest.approx(2 * before, rel=0.15)
