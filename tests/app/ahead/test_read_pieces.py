"""What became of the time that was spent on reading ahead."""

from pathlib import Path

import pytest

from app.ahead.piece_reader import AheadTime, ReadPieces
from app.paths import Paths


def test_what_is_asked_is_used_and_the_rest_wasted() -> None:
    pieces = ReadPieces()
    pieces.add(10, 20, 1.0)
    pieces.add(20, 40, 4.0)
    pieces.add(10, 40, 3.0, is_drafters=True)
    tokens, spent = pieces.settle(30)
    assert tokens == 20
    assert spent == AheadTime(1.0 + 2.0 + 2.0, 2.0 + 1.0)
    assert pieces.settle(40) == (0, AheadTime())


def test_what_is_taken_back_is_wasted_at_once_and_not_twice() -> None:
    pieces = ReadPieces()
    pieces.add(0, 8, 2.0)
    pieces.cut(6)
    assert pieces.wasted == 0.5
    pieces.cut(6)
    pieces.add(6, 8, 7.0)
    pieces.lost(0.25)
    assert pieces.wasted == 0.75
    tokens, spent = pieces.settle(8)
    assert (tokens, spent) == (8, AheadTime(8.5, 0.75))
    assert pieces.wasted == 0.0


def test_what_is_read_again_as_it_is_was_not_in_vain() -> None:
    pieces = ReadPieces()
    pieces.add(0, 8, 2.0)
    pieces.read_again(4)
    pieces.add(4, 12, 3.0)
    assert pieces.wasted == 0.0
    assert pieces.settle(12) == (12, AheadTime(5.0, 0.0))
    assert pieces.settle(12) == (0, AheadTime())


def test_totals_of_all_sessions_are_kept() -> None:
    paths = Paths.of_this_user()
    assert AheadTime.kept(paths) == AheadTime()
    AheadTime().keep(paths)
    assert not paths.read_ahead.exists()
    AheadTime(1.5, 0.5).keep(paths)
    AheadTime(1.0, 0.25).keep(paths)
    assert AheadTime.kept(paths) == AheadTime(2.5, 0.75)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"schema": 1, "used_seconds": -1, "wasted_seconds": NaN}',
        '{"schema": 1, "used_seconds": "1", "wasted_seconds": null}', '{"schema": 9}',
        f'{{"schema": 1, "used_seconds": 1{400 * "0"}, "wasted_seconds": -1{400 * "0"}}}',
    ],
)  # fmt: skip
def test_damaged_totals_begin_anew(text: str) -> None:
    paths = Paths.of_this_user()
    Path(paths.read_ahead.parent).mkdir(parents=True)
    paths.read_ahead.write_text(text)
    assert AheadTime.kept(paths) == AheadTime()
    AheadTime(1.0, 2.0).keep(paths)
    assert AheadTime.kept(paths) == AheadTime(1.0, 2.0)
