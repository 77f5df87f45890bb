"""Pages that can no longer be read, in place of which zeros are read."""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from backends.streaming.mapped_file import MappedFile, mapped_ranges
from backends.streaming.memory_pages import PageGuard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such pages guarded")

PAGES = 64


@pytest.fixture
def file(tmp_path: Path) -> Iterator[MappedFile]:
    path = tmp_path / "weights"
    path.write_bytes(b"x" * PAGES * mmap.PAGESIZE)
    with ExitStack() as closing:
        yield MappedFile(path, closing)


def read_by_engine(file: MappedFile, page: int) -> bytes:
    """The first bytes of a page, read by C code."""
    buffer = ctypes.create_string_buffer(8)
    source = ctypes.c_void_p(file.address + page * mmap.PAGESIZE)
    ctypes.CDLL(None).memcpy(buffer, source, ctypes.c_size_t(8))
    return buffer.raw


def test_zeros_are_read_of_a_file_that_was_cut_and_it_is_told(file: MappedFile):
    guard, other = PageGuard(mapped_ranges(file)), PageGuard([(mmap.PAGESIZE, mmap.PAGESIZE)])
    try:
        assert read_by_engine(file, PAGES - 1) == b"x" * 8
        assert not guard.has_lost
        os.truncate(file.path, mmap.PAGESIZE)
        reader = Thread(target=read_by_engine, args=(file, PAGES // 2))
        reader.start()
        reader.join()
        assert guard.has_lost
        assert not other.has_lost
        assert read_by_engine(file, PAGES - 1) == bytes(8)
    finally:
        guard.close()
        guard.close()
        other.close()


ENDS = """
import ctypes, os, sys
from contextlib import ExitStack
from pathlib import Path
from backends.streaming.mapped_file import MappedFile
from backends.streaming.memory_pages import PageGuard
with ExitStack() as closing:
    file = MappedFile(Path(sys.argv[1]), closing)
    guard = PageGuard([(file.address, 4096)] if sys.argv[2] == "elsewhere" else [])
    if sys.argv[2] == "closed":
        guard.close()
    os.truncate(file.path, 4096)
    ctypes.string_at(file.address + 8192, 8)
"""


@pytest.mark.parametrize("guarded", ["elsewhere", "closed"])
def test_a_page_that_is_not_guarded_ends_the_process_as_ever(file: MappedFile, guarded: str):
    command = [sys.executable, "-c", ENDS, str(file.path), guarded]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert signal.Signals(-ended.returncode).name == "SIGBUS", ended.stderr
