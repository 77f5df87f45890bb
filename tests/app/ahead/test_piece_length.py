"""Lengths of pieces: by measured costs, what was read so far, and how lately a key was pressed."""

from app.ahead.piece_reader import (
    GROUP,
    QUIET_SECONDS,
    SHORT_SECONDS,
    STOPPABLE_SECONDS,
    PieceLength,
)
from decoding.estimation.cost import CostModel

MOST = 256


def by_costs(plain: float, per_token: float) -> PieceLength:
    """With a straight curve of costs, up to 16 tokens."""
    costs = CostModel({1: plain, 16: plain + 15 * per_token})
    return PieceLength(lambda: costs)


def test_a_piece_takes_no_longer_than_a_delay_that_is_not_felt() -> None:
    lengths = by_costs(0.01, 0.0025)  # 16 tokens take 0.0475 s
    assert lengths.choose(MOST, 0.0, stops_passes=False) == 16
    assert (lengths.seconds(16) or 1.0) < SHORT_SECONDS < (lengths.seconds(32) or 0.0)


def test_a_plain_step_may_be_waited_for_where_it_takes_longer() -> None:
    assert by_costs(0.2, 0.1).choose(MOST, 0.0, stops_passes=False) == GROUP
    assert by_costs(0.2, 0.002).choose(MOST, 0.0, stops_passes=False) == 16


def test_a_piece_that_can_be_stopped_may_take_longer() -> None:
    lengths = by_costs(0.01, 0.0025)
    length = lengths.choose(MOST, 0.0, stops_passes=True)
    assert length > lengths.choose(MOST, 0.0, stops_passes=False)
    assert (lengths.seconds(length) or 1.0) <= STOPPABLE_SECONDS


def test_after_silence_a_piece_that_can_be_stopped_is_as_long_as_in_a_prompt() -> None:
    lengths = by_costs(0.2, 0.1)
    assert lengths.choose(MOST, QUIET_SECONDS, stops_passes=True) == MOST
    assert lengths.choose(MOST, QUIET_SECONDS - 0.1, stops_passes=True) == GROUP
    assert lengths.choose(MOST, QUIET_SECONDS, stops_passes=False) == GROUP


def test_without_measured_costs_pieces_grow_as_they_prove_short() -> None:
    lengths = PieceLength(lambda: None)
    chosen: list[int] = []
    for _ in range(6):
        count = lengths.choose(64, 0.0, stops_passes=False)
        chosen.append(count)
        lengths.observe(count, 0.001 * count)
    assert chosen == [4, 32, 32, 32, 32, 32]


def test_measured_pieces_count_more_than_the_curve() -> None:
    lengths = by_costs(0.01, 0.0025)
    for _ in range(20):  # the machine is busy, or the context deep
        lengths.observe(16, 0.2)
        lengths.observe(8, 0.1)
    assert lengths.choose(MOST, 0.0, stops_passes=False) == 4
    for _ in range(20):
        lengths.observe(16, 0.01)
        lengths.observe(8, 0.01)
    assert lengths.choose(MOST, 0.0, stops_passes=False) == 64


def test_a_context_of_few_tokens_is_read_in_pieces_of_its_passes() -> None:
    assert PieceLength(lambda: None).choose(2, 0.0, stops_passes=False) == 2
