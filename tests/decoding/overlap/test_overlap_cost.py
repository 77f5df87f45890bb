"""What drafting ahead is expected to cost, and how that follows what it does."""

import math

import pytest

from decoding.estimation.cost import CostModel, DraftCost
from decoding.overlap.overlap_cost import (
    FREE,
    AtOnce,
    OverlapCost,
    OverlappedPasses,
    Slowdown,
    expected_hidden,
    expected_hits,
    predicted,
)

PASSES = CostModel({1: 1.0, 2: 1.5, 4: 2.0, 16: 3.0})
FLAT = CostModel({1: 1.0, 16: 1.1})


def test_the_hidden_part_of_the_drafting_costs_nothing() -> None:
    in_turn = DraftCost(0.1, 0.01, 0.02)
    cost = OverlapCost(in_turn, 0.75)
    assert cost.seconds(4, 1) == pytest.approx(0.02 + 4 * 0.025)
    assert cost.seconds(0, 11) == pytest.approx(in_turn.seconds(0, 11))


@pytest.mark.parametrize("hidden", [0.0, 0.6, 1.0, -0.5])
def test_the_hidden_share_follows_what_drafts_took(hidden: float) -> None:
    cost = OverlapCost(DraftCost(0.1, 0.01), 0.5)
    for _ in range(200):
        cost.observe(4, 1, (1.0 - hidden) * 0.4)
    assert cost.hidden == pytest.approx(hidden, abs=0.01)
    assert cost.draw_seconds == pytest.approx(0.1 * (1.0 - hidden), abs=0.002)


def test_a_slower_drafter_is_slower_here_too() -> None:
    in_turn = DraftCost(0.1, 0.01)
    cost = OverlapCost(in_turn, 0.5)
    before = cost.draw_seconds
    in_turn.observe(4, 1, 0.8)
    assert cost.draw_seconds > before


def test_passes_take_longer_while_both_run() -> None:
    slowdown = Slowdown(1.5)
    passes = OverlappedPasses(PASSES, slowdown)
    assert passes.of_draft(0) == 0.0
    assert passes.of_draft(3) == pytest.approx(1.5 * 2.0 - 1.0)
    for _ in range(60):
        slowdown.observe(2.0, 2.4)
    assert slowdown.factor == pytest.approx(1.2, abs=0.01)
    for _ in range(60):
        slowdown.observe(2.0, 1.0)
    assert slowdown.factor == 1.0, "nobody is faster for the company"


def test_what_counts_of_a_pass_is_bounded() -> None:
    assert Slowdown(1.2).observe(2.0, 2.8) == pytest.approx(1.4)
    assert Slowdown(1.2).observe(2.0, 200.0) == pytest.approx(1.2 * math.exp(0.5))


def alone(slowdown: Slowdown, costs: CostModel, seconds: float) -> None:
    """A plain step of so many seconds."""
    before = costs.seconds(1)
    costs.observe(1, seconds)
    slowdown.confirm(math.log(costs.seconds(1) / before))


@pytest.mark.parametrize("load", [0.5, 0.9, 1.1, 2.0])
def test_a_drift_of_the_target_is_no_slowdown(load: float) -> None:
    """First seen by passes that run beside the drafter, until a pass alone is called for."""
    slowdown, costs = Slowdown(1.2), CostModel({1: 1.0, 2: 1.5, 4: 2.0, 16: 3.0})
    for _ in range(40):
        slowdown.observe(costs.seconds(4), 1.2 * load * 2.0)
        for _ in range(20):
            if not slowdown.is_doubtful:
                break
            alone(slowdown, costs, load)
    for _ in range(40):  # it is parked, or it is not
        alone(slowdown, costs, load)
    assert costs.seconds(1) == pytest.approx(load, rel=0.01)
    assert slowdown.factor == pytest.approx(1.2, rel=0.03)


def test_what_passes_alone_do_not_show_is_a_slowdown() -> None:
    slowdown, costs = Slowdown(1.2), CostModel({1: 1.0, 2: 1.5, 4: 2.0, 16: 3.0})
    plain = 0
    for _ in range(60):
        slowdown.observe(costs.seconds(4), 1.7 * 2.0)
        while slowdown.is_doubtful and plain < 30:
            alone(slowdown, costs, 1.0)
            plain += 1
    assert slowdown.factor == pytest.approx(1.7, rel=0.01)
    assert 0 < plain < 30
    for _ in range(60):
        alone(slowdown, costs, 1.0)
    for _ in range(60):  # while nothing is drafted ahead
        alone(slowdown, costs, 2.0)
    assert slowdown.factor == pytest.approx(1.7, rel=0.01)


def test_more_outcomes_hit_more_often() -> None:
    hits = [expected_hits([0.8, 0.8, 0.8], count, 0.8) for count in range(5)]
    assert hits[0] == 0.0
    assert hits == sorted(hits)
    assert hits[1] == pytest.approx(0.8**3 * 0.8)


def test_a_drafter_as_slow_as_the_target_hides_nothing() -> None:
    assert expected_hidden([0.8] * 4, 1.0, 1.0, 1.0) < 0.0
    assert expected_hidden([0.8] * 4, 1.0, 0.0, 0.0) == 0.0
    assert expected_hidden([], 1.0, 0.1, 0.1) == 0.0
    assert expected_hidden([0.9] * 4, 1.0, 0.02, 0.02) > 0.6


def test_what_is_worth_it_depends_on_what_both_take() -> None:
    share = [0.8] * 12
    in_turn = predicted(share, FLAT, 0.1, None)
    assert in_turn.hidden == 0.0
    assert predicted(share, FLAT, 0.1, FREE).speedup > 1.05 * in_turn.speedup
    assert predicted(share, FLAT, 0.1, AtOnce(1.9, 1.9)).speedup < in_turn.speedup


def test_in_turn_is_the_formula_of_fixed_lengths() -> None:
    found = predicted([0.8] * 12, FLAT, 0.1, None)
    expected = (1.0 - 0.8 ** (found.length + 1)) / 0.2
    spent = 1.0 + FLAT.of_draft(found.length) + found.length * 0.1
    assert found.speedup == pytest.approx(expected / spent)
