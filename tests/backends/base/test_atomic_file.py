"""Files are replaced whole or not at all."""

import os
import re
import stat
from pathlib import Path

import pytest

from backends.base.atomic_file import replacing, write_whole


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"ne", None])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_text_and_bytes_are_written_as_given(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "a\n\ud800é")
    assert path.read_bytes() == "a\n?é".encode()
    write_whole(path, b"\r\n")
    assert path.read_bytes() == b"\r\n"


@pytest.mark.skipif(os.name == "nt", reason="there are no folders to sync")
def test_a_file_is_synced_before_it_is_renamed_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        done.append("folder" if is_folder else f"{os.fstat(descriptor).st_size} bytes")
        fsync(descriptor)

    def replaced(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    write_whole(tmp_path / "new", "content")
    assert done == ["7 bytes", "rename", "folder"]


def test_every_rename_of_the_product_goes_through_the_helper() -> None:
    root = Path(__file__).parents[3]
    found: set[str] = set()
    packages = ("app", "backends", "decoding", "models")
    for path in (path for package in packages for path in (root / package).rglob("*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            call = re.search(r"os\.(?:replace|rename)\(|\.replace\([^,=]*\)$", line)
            if call and ".unusable" not in line:  # it is moved aside as it is
                found.add(f"{path.relative_to(root).as_posix()}: {line.strip()}")
    assert found == {"backends/base/atomic_file.py: written.replace(path)"}
