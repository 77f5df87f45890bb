"""The speed of a disk is measured once per file, and lent to other files of that disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.learned import speeds as disk_speeds
from app.learned.speeds import disk_speed, known_disk_speed
from app.paths import Paths
from backends.streaming.disk_speed import DiskSpeed


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
