"""Speeds of plain replies: kept across starts, and how much they vary."""

import math
import random
from pathlib import Path

import pytest

from app.learned.speeds import PlainReplies, PlainReply


def kept(rates: list[float], folder: Path) -> PlainReplies:
    replies = PlainReplies.at(folder / "replies.json")
    for rate in rates:
        replies = replies.with_reply(PlainReply(rate, 100, 0.02))
    return replies


def test_replies_are_kept_across_starts(tmp_path: Path) -> None:
    kept([10.0, 12.0, 11.0], tmp_path)
    again = PlainReplies.at(tmp_path / "replies.json")
    assert (again.rate, len(again.replies)) == (12.0, 3)


def test_a_busy_hour_does_not_lower_the_rate(tmp_path: Path) -> None:
    kept([14.0], tmp_path)
    assert kept([2.0] * 50, tmp_path).rate == 14.0
    assert PlainReplies.at(tmp_path / "replies.json").rate == 14.0


def test_a_faster_measurement_at_load_counts_and_is_kept(tmp_path: Path) -> None:
    replies = kept([2.0], tmp_path).with_measured(13.0).with_measured(5.0)
    assert replies.rate == 13.0
    assert PlainReplies.at(tmp_path / "replies.json").rate == 13.0
    assert PlainReplies(None).with_measured(3.0).rate == 3.0


def test_two_windows_lose_no_reply(tmp_path: Path) -> None:
    one, other = (PlainReplies.at(tmp_path / "replies.json") for _ in range(2))
    one.with_reply(PlainReply(10.0, 100, 0.02))
    assert len(other.with_reply(PlainReply(12.0, 100, 0.02)).replies) == 2


def test_only_the_latest_are_kept(tmp_path: Path) -> None:
    assert len(kept([10.0 + number for number in range(50)], tmp_path).replies) == 24


def test_nothing_is_known_at_first() -> None:
    assert PlainReplies(None).rate is None
    assert PlainReplies(None).spread == PlainReplies(None).noise == 0.05


def test_noise_within_replies_is_that_of_the_noisier_ones() -> None:
    replies = tuple(PlainReply(10.0, 100, noise) for noise in (0.01, 0.01, 0.02, 0.03, 0.08))
    assert 0.03 <= PlainReplies(None, replies).noise <= 0.08


def test_a_quiet_machine_gets_a_small_spread_and_a_noisy_one_a_large_one() -> None:
    chance = random.Random(1)

    def spread(deviation: float) -> float:
        rates = [10.0 * math.exp(chance.gauss(0.0, deviation)) for _ in range(40)]
        return PlainReplies(None, tuple(PlainReply(rate, 100, 0.02) for rate in rates)).spread

    assert spread(0.01) < 0.025
    assert 0.08 < spread(0.12) < 0.18


def test_slow_drift_and_one_interrupted_reply_are_no_spread() -> None:
    drifting = [10.0 * 0.99**number for number in range(40)]
    drifting[20] = 1.0
    replies = PlainReplies(None, tuple(PlainReply(rate, 100, 0.02) for rate in drifting))
    assert replies.spread < 0.025


def test_a_longer_context_is_no_spread() -> None:
    replies = [PlainReply(1e4 / size, size, 0.02) for size in range(100, 140)]
    assert PlainReplies(None, tuple(replies)).spread < 0.025


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"schema": 2, "replies": [[1, 2]]}', '{"schema": 1, "replies": 7}',
        '{"schema": 1, "replies": [[1e999, 5, 0], [-1, 5, 0], [1, 0, 0], [1, 2], "abc", null]}',
        '{"schema": 1, "best": 1e999}', '{"schema": 1, "best": "7"}',
        '{"schema": 1, "replies": [[1, 1e400, 0], [1, 2, -1], [1, 2, "x"], {"rate": 1}]}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_read_as_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "replies.json").write_text(text)
    assert PlainReplies.at(tmp_path / "replies.json") == PlainReplies(tmp_path / "replies.json")
