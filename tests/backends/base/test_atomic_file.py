"""Files are replaced whole or not at all."""

import errno
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from backends.base.safe_files import replacing, write_whole


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


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_disk_that_refuses_keeps_the_old_file_or_has_the_new_one(
    is_folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")

    def refused(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == is_folder:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refused)
    if is_folder:  # some disks sync no folders
        write_whole(path, "new")
    else:
        with pytest.raises(OSError, match="Input/output"):
            write_whole(path, "new")
    assert path.read_text() == ("new" if is_folder else "old")
    assert list(tmp_path.iterdir()) == [path]


def test_every_rename_of_the_product_goes_through_the_helper() -> None:
    root = Path(__file__).parents[3]
    found: set[str] = set()
    packages = ("app", "backends", "decoding", "models")
    for path in (path for package in packages for path in (root / package).rglob("*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            call = re.search(r"os\.(?:replace|rename)\(|\.replace\([^,=]*\)$", line)
            if call and ".unusable" not in line:  # it is moved aside as it is
                found.add(f"{path.relative_to(root).as_posix()}: {line.strip()}")
    assert found == {"backends/base/safe_files.py: written.replace(path)"}


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for place in ("old", "new"):
        (tmp_path / f"to-{place}").symlink_to(Path("real") / place)
    (tmp_path / "real/old").write_text("old")
    (tmp_path / "real/old").chmod(0o600)
    for is_private in (False, True):
        for place in ("old", "new"):
            write_whole(tmp_path / f"to-{place}", f"{is_private}", is_private=is_private)
            assert (tmp_path / f"to-{place}").is_symlink()
            assert (tmp_path / "real" / place).read_text() == f"{is_private}"
        assert stat.S_IMODE((tmp_path / "real/old").stat().st_mode) == 0o600
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == ["new", "old"]


@pytest.mark.skipif(os.name == "nt", reason="pipes have no names in folders there")
def test_what_is_no_regular_file_is_written_into(tmp_path: Path) -> None:
    pipe, link, read = tmp_path / "pipe", tmp_path / "link", list[bytes]()
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
        reader.start()
        write_whole(path, "content", is_private=False)
        assert stat.S_ISFIFO(pipe.lstat().st_mode)
        reader.join()
    assert read == [b"content", b"content"]
    (tmp_path / "nothing").symlink_to(os.devnull)
    write_whole(tmp_path / "nothing", "content", is_private=False)
    assert (tmp_path / "nothing").is_symlink()
    ours, theirs = os.pipe()  # as a shell gives it: --output >(jq .)
    with open(ours, "rb") as came:
        with open(theirs, "wb"):
            write_whole(Path(f"/dev/fd/{theirs}"), "content", is_private=False)
        assert came.read() == b"content"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "nothing", "pipe"]
