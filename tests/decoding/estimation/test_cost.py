"""The cost curve: between its points, and how passes correct it."""

from collections.abc import Sequence
from typing import cast

import pytest

from backends.base import Block, BlockContext
from decoding.estimation.calibration import BlockPasses, calibrate
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.estimation.draft_cost import BlockCost, LevelCost

POINTS = {1: 0.010, 2: 0.018, 4: 0.024, 8: 0.040}


def test_between_points_it_is_a_straight_line() -> None:
    costs = CostModel(Measured(POINTS))
    assert costs.largest == 8
    assert costs.seconds(3) == pytest.approx(0.021)
    assert costs.relative(6) == pytest.approx(3.2)
    assert costs.relative(1) == 1.0


HELD = {2000: {1: 0.2, 4: 0.5}, 4000: {1: 0.4, 4: 1.6}}
"""Plain steps of 10 ms that passes take longer; those over 4 tokens by another kernel from some
length on."""


@pytest.mark.parametrize(
    ("tokens", "plain", "of_four"),
    [(0, 10, 24), (1000, 11, 26.5), (2000, 12, 29), (3000, 13, 34.5), (8000, 18, 56)],
)
def test_what_is_held_adds_to_each_length_by_itself(
    tokens: int, plain: float, of_four: float
) -> None:
    """Between two depths on a line, beyond the last in proportion."""
    costs = CostModel(Measured(POINTS, held=HELD))
    costs.hold(tokens)
    assert 1000 * costs.seconds(1) == pytest.approx(plain)
    assert 1000 * costs.seconds(4) == pytest.approx(of_four)
    assert costs.of_draft(3) == pytest.approx(of_four / plain - 1.0)


def test_between_lengths_what_is_held_adds_lies_on_a_line_and_goes_on() -> None:
    costs = CostModel(Measured(POINTS, held={2000: {1: 0.2, 2: 0.15, 4: 0.5}}))
    costs.hold(2000)
    added = [100 * (costs.seconds(n) - CostModel(Measured(POINTS)).seconds(n)) for n in range(1, 9)]
    assert added == pytest.approx([0.2, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1]), "never less"


def test_load_that_shows_after_many_tokens_is_not_what_they_cost() -> None:
    """So that a short chat that follows begins with what is true of it."""
    costs = CostModel(Measured(POINTS, held=HELD))
    costs.hold(4000)
    for _ in range(40):
        costs.observe(1, 0.014)
        costs.observe(4, 0.040)
    costs.hold(0)
    assert [costs.seconds(n) for n in (1, 4)] == pytest.approx([0.010, 0.024])
    assert costs.load == pytest.approx(1.0)


def test_where_nothing_was_measured_all_lengths_share_what_plain_steps_show() -> None:
    costs = CostModel(Measured(POINTS))
    costs.hold(4000)
    for _ in range(60):
        costs.observe(1, 0.020)
    assert costs.of_draft(3) == pytest.approx(1.4)
    assert not costs.has_drifted, "what so many tokens cost is no error"
    costs.hold(100)
    assert costs.has_drifted
    costs.learn_held(HELD)
    costs.hold(4000)
    assert not costs.has_drifted
    assert costs.seconds(1) == pytest.approx(0.014), "what it had learned was part of that"


def test_load_that_all_passes_share_leaves_the_shape() -> None:
    costs = CostModel(Measured(POINTS))
    for _ in range(60):
        for n, seconds in POINTS.items():
            costs.observe(n, 2.0 * seconds)
    for n, seconds in POINTS.items():
        assert costs.seconds(n) == pytest.approx(2.0 * seconds, rel=0.02)
        assert costs.relative(n) == pytest.approx(seconds / POINTS[1], rel=0.03)


def test_one_length_that_costs_more_is_learned_beside_plain_steps() -> None:
    costs = CostModel(Measured(POINTS))
    for _ in range(200):
        costs.observe(1, 0.010)
        costs.observe(4, 0.036)
    assert costs.relative(4) == pytest.approx(3.6, rel=0.05)
    assert costs.relative(8) >= 4.0  # others are taken to have become dearer too


def test_noise_never_makes_a_longer_pass_a_gain() -> None:
    costs = CostModel(Measured({1: 0.50, 2: 0.51, 16: 0.60}))
    for _ in range(60):
        costs.observe(1, 0.50)
        costs.observe(2, 0.30)
        costs.observe(8, 0.30, is_tree=True)
    assert costs.relative(2) < 1.0
    assert costs.of_draft(1) == 0.0
    assert costs.of_tree(7) == 0.0


def test_a_pass_that_met_a_hiccup_counts_for_little() -> None:
    costs = CostModel(Measured(POINTS))
    costs.observe(1, 100.0)
    assert costs.seconds(1) < 0.011


def test_a_plain_step_after_a_draft_is_expected_to_be_slower() -> None:
    costs = CostModel(Measured(POINTS, switching=0.1))
    for _ in range(100):
        costs.observe(1, 0.011, after_draft=True)
    assert costs.seconds(1) == pytest.approx(0.010)
    assert costs.of_draft(3) == pytest.approx(1.4 + 0.1)
    assert costs.of_draft(0) == 0.0


@pytest.mark.parametrize(("n", "seconds"), [(0, 0.01), (9, 0.01), (1, 0.0), (1, -1.0)])
def test_what_cannot_be_is_ignored(n: int, seconds: float) -> None:
    costs = CostModel(Measured(POINTS))
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
    costs = CostModel(Measured(POINTS))
    cost = DraftCost(0.0005, 0.0001, 0.002, beside=costs)
    alone = DraftCost(0.0005, 0.0001, 0.002)
    assert cost.seconds(2, 3) == pytest.approx(alone.seconds(2, 3))
    for _ in range(60):
        costs.observe(1, 0.030)
    assert cost.seconds(2, 3) == pytest.approx(3.0 * alone.seconds(2, 3), rel=0.02)
    assert cost.draw_seconds / costs.seconds(1) == pytest.approx(0.05)
    for _ in range(60):
        cost.observe(2, 3, 0.030)
    assert cost.seconds(2, 3) == pytest.approx(0.030, rel=0.02)


TEXT = list(range(200))
BEGIN, DRAW, READ = 0.010, 0.001, 0.0002


class TimedBlocks:
    """A context that takes as long as it says."""

    n_ctx = max_rollback = 256
    n_chunk = max_logits = 64
    longest = 15

    def __init__(self) -> None:
        self.now = 0.0
        self.length = 0

    def clock(self) -> float:
        return self.now

    def forward(self, tokens: Sequence[int], n_logits: int) -> None:
        assert n_logits == 0
        self.now += READ * len(tokens)
        self.length += len(tokens)

    def draft(self, count: int) -> Block:
        assert 0 < count <= self.longest
        self.now += BEGIN + DRAW * count
        return lambda _: None

    def truncate(self, length: int) -> None:
        self.length = length

    def checkpoint(self, *, is_brief: bool = False) -> None:
        pass


def measured(*, reads: bool) -> Measured:
    timed = TimedBlocks()
    passes = BlockPasses(cast("BlockContext", timed), reads)
    found = calibrate(passes, TEXT, timed.clock)
    assert timed.length == 0
    return found


def test_a_calibration_finds_what_blocks_and_what_tokens_before_them_cost() -> None:
    drawing, reading = measured(reads=False), measured(reads=True)
    assert max(drawing.seconds) == TimedBlocks.longest
    cost = BlockCost.of_block(drawing, reading, TimedBlocks.longest)
    assert cost.begin_seconds == pytest.approx(BEGIN + READ)
    assert cost.draw_seconds == pytest.approx(DRAW)
    assert cost.read_seconds == pytest.approx(READ)
    for drafted, backlog in ((1, 1), (7, 3), (15, 60)):
        expected = BEGIN + DRAW * drafted + READ * backlog
        assert cost.seconds(drafted, backlog) == pytest.approx(expected)
    assert cost.is_steady


def test_a_block_that_is_not_used_up_costs_as_much() -> None:
    cost = BlockCost(DRAW, READ, BEGIN, 15)
    cost.plan(8)
    assert cost.seconds(3, 1) == pytest.approx(BEGIN + 8 * DRAW)
    assert cost.seconds(0, 1) == 0.0
    cost.observe(3, 1, BEGIN + 8 * DRAW)
    assert cost.draw_seconds == pytest.approx(DRAW), "it took as long as expected"


def test_a_line_that_falls_costs_nothing_per_token() -> None:
    """Timings of short passes may say that more tokens take less time."""
    flat = Measured({1: 0.010, 15: 0.009})
    cost = BlockCost.of_block(flat, flat, 15)
    assert (cost.draw_seconds, cost.read_seconds) == (0.0, 0.0)
    assert cost.begin_seconds == pytest.approx(0.010)


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
