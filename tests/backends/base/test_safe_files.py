"""Files of ours are private, replaced whole and checked; those of others are read with care."""

import errno
import os
import re
import socket
import stat
import struct
import sys
import threading
import zlib
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from app.learned.ngram_memory import NgramFile
from app.prompt_cache.saved_states import read_head as read_state_head
from app.prompt_cache.saved_states import read_state, write_state
from backends.base.safe_files import (
    DamagedFileError,
    NotRegularError,
    OtherVersionError,
    TabledFormat,
    TooLargeError,
    crc32,
    make_private_folder,
    read_bounded,
    read_text,
    replacing,
    seal,
    unseal,
    write_whole,
)
from decoding.drafters.ngram import NgramStatistics, Passage
from decoding.drafters.retrieval.segment_file import Document, Note, read_head, write_segment


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
    packages = ("app", "backends", "decoding", "models", "training")
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


KEY = bytes(range(32))
STATE = bytes.fromhex(
    "7363737461746531000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f08bb5e5d6eaa"
    "c1049ede0893d30ed022b1a4d9b5b48db414871f51c9cb35283d0300000000000000050000000000000001000000"
    "0200000070110100195f8bf5cbdf524a8c74b48ca8786b057efb51be38ea9177ae156ce0ec86e1470001020304"
)
NGRAMS = zlib.decompress(
    b64decode(
        "eNorTs5LL0rMNUx/9vxhGg7AxcDAwAnE7AzUBB/sGUbBiATTnLtznv/+Pxr/o2AUjIJRMCLBaP0/Wv+PglEwCkbB"
        "KBhK4IA2A8MMEyaGNw+YGaboszN0XGNn2PKLg2FOOSeDyRQuhifdvAwunAwMHUC1Wp8YGC4Aaf5kBoYTQDrrJES8"
        "4z1E3MeAgcEDSAvuZ2AIANL6nyD0im4GhglAGgCEGjQG"
    )
)
SEGMENT = zlib.decompress(
    b64decode(
        "eNorTi5KLSnKNGRhZmJkYGRiZmFlY+fg5OLm4eXjFxAUEhYRFROXkJSSlpGVk2diYGCQAGJWIFbV6HZjZ4ACNH0Q"
        "wR/2EJrFgRFIMgMxBwM+wOEAoQUcQOaD7Kpj2er7Hwig2kFCjMj8/1QAMIPZQIZD/UapPQCul4ow"
    )
)
"""Written on a little-endian machine."""


def statistics() -> NgramStatistics:
    learned = NgramStatistics()
    learned.learn(Passage([1, 2, 3, 1, 2, 3, 1], 0))
    return learned


def documents() -> list[Document]:
    return [
        Document(Note(7, bytes(range(16)), 1.5, 2.5), np.array([1, 2, 3], np.uint32)),
        Document(Note(8, bytes(16), 3.0, 4.0), np.array([2, 3], np.uint32)),
    ]


def test_a_saved_state_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    path.write_bytes(STATE)
    saved = read_state_head(path)
    assert saved is not None
    assert (saved.key, saved.tokens) == (KEY, (1, 2, 70_000))
    state = read_state(saved)
    assert state is not None
    assert state.tolist() == [0, 1, 2, 3, 4]
    assert write_state(path, KEY, saved.tokens, state, lambda: True)
    assert path.read_bytes() == STATE


def test_ngrams_keep_their_bytes(tmp_path: Path) -> None:
    file = NgramFile(tmp_path / "a.ngrams", "f" * 24, 10)
    file.path.write_bytes(NGRAMS)
    read = file.read()
    assert read is not None
    assert np.array_equal(read.counts, statistics().counts)
    assert np.array_equal(read.table.contents.entries, statistics().table.contents.entries)
    file.write(read)
    assert file.path.read_bytes() == NGRAMS


@pytest.mark.skipif(sys.byteorder != "little", reason="the file has the machine's byte order")
def test_a_segment_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.segment"
    path.write_bytes(SEGMENT)
    head = read_head(path, KEY)
    assert head.table["number"].tolist() == [7, 8]
    assert head.size == len(SEGMENT)
    list(write_segment(path, KEY, documents()))
    assert path.read_bytes() == SEGMENT


def test_a_changed_byte_of_a_sealed_file_is_found() -> None:
    content = seal(b"magic__1", b"body")
    assert unseal(b"magic__1", content) == b"body"
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        with pytest.raises((DamagedFileError, OtherVersionError)):
            unseal(b"magic__1", bytes(damaged))
    for length in range(len(content)):
        with pytest.raises(DamagedFileError):
            unseal(b"magic__1", content[:length])


def test_a_changed_byte_before_the_data_of_a_tabled_file_is_found(tmp_path: Path) -> None:
    file_format = TabledFormat(b"magic__1", struct.Struct("<II"), crc32)
    head = file_format.head((2, 3), b"ab")
    path = tmp_path / "file"

    def read(content: bytes) -> object:
        path.write_bytes(content)
        with path.open("rb") as file:
            return file_format.read_head(file, lambda table, data: (table, data))

    assert read(head + b"xyz") == ((2, 3), b"ab")
    for place in range(len(head)):
        damaged = bytearray(head + b"xyz")
        damaged[place] ^= 1
        with pytest.raises((DamagedFileError, OtherVersionError)):
            read(bytes(damaged))
    with pytest.raises(DamagedFileError):
        read(head + b"xyz!")


def test_another_version_is_told_from_damage() -> None:
    with pytest.raises(OtherVersionError):
        unseal(b"magic__1", seal(b"magic__2", b""))
    with pytest.raises(DamagedFileError):
        unseal(b"magic__1", seal(b"mystic_1", b""))


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
