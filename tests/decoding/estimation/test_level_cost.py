"""What a draft takes that is made a level at a time."""

import pytest

from decoding.estimation.draft_cost import LevelCost


def test_levels_are_billed_by_how_many_nodes_they_run() -> None:
    cost = LevelCost(2.0, 0.5, [1, 3, 2])
    assert [cost.level(width) for width in (1, 2, 3)] == pytest.approx([2.0, 2.5, 3.0])
    assert cost.seconds(3, 1) == cost.seconds(9, 1) == pytest.approx(2.0 + 3.0 + 2.5)
    assert cost.seconds(0, 3) == pytest.approx(2 * 0.5)


def test_what_a_draft_took_corrects_every_level() -> None:
    cost = LevelCost(2.0, 0.5, [1, 3, 2])
    before = cost.level(1), cost.level(3)
    for _ in range(100):
        cost.observe(6, 1, 15.0)
    assert cost.seconds(6, 1) == pytest.approx(15.0, rel=1e-3)
    assert (cost.level(1), cost.level(3)) == pytest.approx([2 * one for one in before], rel=1e-3)
