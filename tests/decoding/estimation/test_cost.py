"""The cost curve: between its points, and how passes correct it."""

import pytest

from decoding.estimation.cost import CostModel, DraftCost

POINTS = {1: 0.010, 2: 0.018, 4: 0.024, 8: 0.040}


def test_between_points_it_is_a_straight_line() -> None:
    costs = CostModel(POINTS)
    assert costs.largest == 8
    assert costs.seconds(3) == pytest.approx(0.021)
    assert costs.relative(6) == pytest.approx(3.2)
    assert costs.relative(1) == 1.0


def test_load_that_all_passes_share_leaves_the_shape() -> None:
    costs = CostModel(POINTS)
    for _ in range(60):
        for n, seconds in POINTS.items():
            costs.observe(n, 2.0 * seconds)
    for n, seconds in POINTS.items():
        assert costs.seconds(n) == pytest.approx(2.0 * seconds, rel=0.02)
        assert costs.relative(n) == pytest.approx(seconds / POINTS[1], rel=0.03)


def test_one_length_that_costs_more_is_learned_beside_plain_steps() -> None:
    costs = CostModel(POINTS)
    for _ in range(200):
        costs.observe(1, 0.010)
        costs.observe(4, 0.036)
    assert costs.relative(4) == pytest.approx(3.6, rel=0.05)
    assert costs.relative(8) >= 4.0  # others are taken to have become dearer too


def test_noise_never_makes_a_longer_pass_a_gain() -> None:
    costs = CostModel({1: 0.50, 2: 0.51, 16: 0.60})
    for _ in range(60):
        costs.observe(1, 0.50)
        costs.observe(2, 0.30)
        costs.observe(8, 0.30, is_tree=True)
    assert costs.relative(2) < 1.0
    assert costs.of_draft(1) == 0.0
    assert costs.of_tree(7) == 0.0


def test_a_pass_that_met_a_hiccup_counts_for_little() -> None:
    costs = CostModel(POINTS)
    costs.observe(1, 100.0)
    assert costs.seconds(1) < 0.011


def test_a_plain_step_after_a_draft_is_expected_to_be_slower() -> None:
    costs = CostModel(POINTS, switching=0.1)
    for _ in range(100):
        costs.observe(1, 0.011, after_draft=True)
    assert costs.seconds(1) == pytest.approx(0.010)
    assert costs.of_draft(3) == pytest.approx(1.4 + 0.1)
    assert costs.of_draft(0) == 0.0


@pytest.mark.parametrize(("n", "seconds"), [(0, 0.01), (9, 0.01), (1, 0.0), (1, -1.0)])
def test_what_cannot_be_is_ignored(n: int, seconds: float) -> None:
    costs = CostModel(POINTS)
    costs.observe(n, seconds)
    assert costs.seconds(1) == 0.010


def test_a_drafter_reads_all_but_the_last_before_it_draws() -> None:
    cost = DraftCost(0.004, 0.001)
    assert cost.seconds(3, 1) == pytest.approx(0.012)
    assert cost.seconds(3, 101) == pytest.approx(0.112)
    for _ in range(60):
        cost.observe(2, 1, 0.016)
    assert cost.draw_seconds == pytest.approx(0.008, rel=0.01)
    assert cost.read_seconds == pytest.approx(0.002, rel=0.01)


def test_a_draft_may_cost_something_whatever_its_length() -> None:
    cost = DraftCost(0.001, 0.0, 0.010)
    assert cost.seconds(0, 5) == 0.0
    assert cost.seconds(1, 1) == pytest.approx(0.011)
    assert cost.seconds(7, 1) == pytest.approx(0.017)
    for _ in range(60):
        cost.observe(7, 1, 0.034)
    assert cost.begin_seconds == pytest.approx(0.020, rel=0.02)
    assert cost.draw_seconds == pytest.approx(0.002, rel=0.02)


def test_what_slows_the_target_slows_layers_that_share_its_device() -> None:
    costs = CostModel(POINTS)
    cost = DraftCost.of_shares(costs, draw=0.05, read=0.01, begin=0.2)
    alone = DraftCost(0.0005, 0.0001, 0.002)
    assert cost.seconds(2, 3) == pytest.approx(alone.seconds(2, 3))
    for _ in range(60):
        costs.observe(1, 0.030)
    assert cost.seconds(2, 3) == pytest.approx(3.0 * alone.seconds(2, 3), rel=0.02)
    assert cost.draw_seconds / costs.seconds(1) == pytest.approx(0.05)
    for _ in range(60):
        cost.observe(2, 3, 0.030)
    assert cost.seconds(2, 3) == pytest.approx(0.030, rel=0.02)
