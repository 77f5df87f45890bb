"""How fast a model's file comes from disk."""

from pathlib import Path

import pytest

from backends.streaming import disk_speed
from backends.streaming.disk_speed import measured_disk_speed


def test_a_file_on_disk_is_measured_and_the_figure_says_how(demo_file: Path):
    speed = measured_disk_speed(demo_file)
    if speed is None:
        pytest.skip("this file system has no direct reading")
    assert speed.bytes_per_second > 0
    assert speed.source.startswith("measured: ")
    assert demo_file.name in speed.source


def test_every_piece_is_read_once_from_the_middle_on():
    pieces = disk_speed._offsets(10 * disk_speed._PIECE + 5)
    assert [at // disk_speed._PIECE for at in pieces] == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


def test_no_figure_where_none_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small = tmp_path / "small.gguf"
    small.write_bytes(bytes(1000))
    assert measured_disk_speed(small) is None
    assert measured_disk_speed(tmp_path / "missing.gguf") is None
    assert measured_disk_speed(tmp_path) is None


def test_no_figure_where_the_disk_fails(demo_file: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(_path: Path) -> None:
        raise OSError

    monkeypatch.setattr(disk_speed, "_open_uncached", fail)
    assert measured_disk_speed(demo_file) is None
