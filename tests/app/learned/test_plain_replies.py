"""What is learned of a machine: speeds of plain replies and disks, and the load of others."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from app.learned import speeds as disk_speeds
from app.learned.calibrations import ProcessorTimes
from app.learned.speeds import PlainReplies, PlainReply, disk_speed, known_disk_speed
from app.paths import Paths
from backends.streaming.mapped_file import DiskSpeed


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


@pytest.mark.parametrize(
    ("later", "load"),
    [
        (ProcessorTimes(wall=2.0, idle=0.0, own=4.0), 0.0),
        (ProcessorTimes(wall=2.0, idle=2.0, own=2.0), 0.0),
        (ProcessorTimes(wall=2.0, idle=1.8, own=2.0), 0.0),  # negligible
        (ProcessorTimes(wall=2.0, idle=0.0, own=2.0), 0.5),
        (ProcessorTimes(wall=0.1, idle=0.0, own=0.0), 0.0),  # too short to tell
    ],
)
def test_load_is_neither_idle_nor_our_own(
    monkeypatch: pytest.MonkeyPatch, later: ProcessorTimes, load: float
) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda: 2)
    assert ProcessorTimes(0.0, 0.0, 0.0).load_until(later) == pytest.approx(load)


def test_the_clocks_of_this_machine_never_run_backwards() -> None:
    before = ProcessorTimes.now()
    after = ProcessorTimes.now()
    assert (after.wall >= before.wall, after.own >= before.own) == (True, True)


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Callable[[float | None], list[Path]]:
    """Let measurements yield a rate; returns the files that are measured."""

    def measure(rate: float | None) -> list[Path]:
        measured: list[Path] = []

        def of(path: Path) -> DiskSpeed | None:
            measured.append(path)
            return DiskSpeed(rate, "measured") if rate else None

        monkeypatch.setattr(disk_speeds, "measured_disk_speed", of)
        return measured

    return measure


def test_a_file_is_measured_once_until_it_changes(
    measuring: Callable[[float | None], list[Path]], tmp_path: Path
) -> None:
    model, paths = tmp_path / "model.gguf", Paths.of_this_user()
    model.write_bytes(b"1")
    measured = measuring(1e9)
    assert disk_speed(model, paths) == disk_speed(model, paths) == DiskSpeed(1e9, "measured")
    assert measured == [model]
    model.write_bytes(b"22")
    disk_speed(model, paths)
    assert measured == [model, model]


def test_a_file_beside_a_measured_one_is_expected_to_be_as_fast(
    measuring: Callable[[float | None], list[Path]], tmp_path: Path
) -> None:
    one, other, paths = tmp_path / "one", tmp_path / "other", Paths.of_this_user()
    for file in (one, other):
        file.write_bytes(b"1")
    assert known_disk_speed(other, paths) is None
    measuring(2e9)
    disk_speed(one, paths)
    assert known_disk_speed(other, paths) == DiskSpeed(2e9, "measured")
    assert known_disk_speed(tmp_path / "missing", paths) is None


@pytest.mark.parametrize("content", ["[]", '{"a": 1}', '{"a": {"device": "x"}}', "{"])
def test_a_damaged_record_is_measured_again(
    measuring: Callable[[float | None], list[Path]], tmp_path: Path, content: str
) -> None:
    model, paths = tmp_path / "model.gguf", Paths.of_this_user()
    model.write_bytes(b"1")
    paths.disk_speeds.parent.mkdir(parents=True, exist_ok=True)
    paths.disk_speeds.write_text(content)
    measuring(1e9)
    assert disk_speed(model, paths) is not None


def test_what_cannot_be_measured_is_not_known(
    measuring: Callable[[float | None], list[Path]], tmp_path: Path
) -> None:
    model, paths = tmp_path / "model.gguf", Paths.of_this_user()
    model.write_bytes(b"1")
    measuring(None)
    assert disk_speed(model, paths) is None
    assert known_disk_speed(model, paths) is None
