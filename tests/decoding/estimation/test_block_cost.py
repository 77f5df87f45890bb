"""What a block costs: a pass of the length planned, whatever is used of it."""

from collections.abc import Sequence
from typing import cast

import pytest

from backends.base import Block, BlockContext
from decoding.estimation.calibration import BlockPasses, calibrate
from decoding.estimation.cost import Measured
from decoding.estimation.draft_cost import BlockCost

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
