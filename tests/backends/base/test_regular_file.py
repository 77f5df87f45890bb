"""Files that may be anything are read within bounds, and made private."""

import os
import socket
import stat
from pathlib import Path

import pytest

from backends.base.safe_files import (
    NotRegularError,
    TooLargeError,
    make_private_folder,
    read_bounded,
    read_text,
    write_whole,
)

posix = pytest.mark.skipif(os.name == "nt", reason="files of POSIX")


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"four\r\nfive\n")
    assert read_text(path, 11) == "four\nfive\n"
    with pytest.raises(TooLargeError, match="larger than 10 bytes"):
        read_bounded(path, 10)


@posix
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (
        tmp_path / "pipe",
        tmp_path / "link",
        tmp_path,
        Path("/dev/tty0"),
        Path("/dev/null"),
    ):
        with pytest.raises(OSError, match=r".+"):
            read_bounded(path, 1000)
    with pytest.raises(NotRegularError):
        read_bounded(tmp_path / "pipe", 1000)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match=r".+"):
            read_bounded(tmp_path / "socket", 1000)


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no file can have this name"):
        read_bounded(tmp_path / "a\0b", 10)


@posix
def test_what_is_made_is_private_from_the_start(tmp_path: Path) -> None:
    usual = os.umask(0)
    try:
        make_private_folder(tmp_path / "a" / "b")
        write_whole(tmp_path / "a" / "file", b"mine")
        write_whole(tmp_path / "a" / "shared", b"for all", is_private=False)
    finally:
        os.umask(usual)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"a": 0o700, "b": 0o700, "file": 0o600, "shared": 0o666}


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r".+"):
        make_private_folder(tmp_path / "file" / "folder")
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "file")
