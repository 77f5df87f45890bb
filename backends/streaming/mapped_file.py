"""A model's file, mapped for reading, the system's cache of it, and the speed of its disk."""

import mmap
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from mmap import PAGESIZE
from pathlib import Path

import numpy as np

from backends.base import ModelError
from backends.base.safe_files import open_regular
from backends.files.gguf_header import BRIEFLY_MAPPED
from backends.streaming import memory_pages
from backends.streaming.weight_plan import Extent

_PIECE = 16 << 20
"""Most bytes of one range: locked, and let go, at once."""


def unreadable(path: Path, why: str) -> ModelError:
    """Error for a file of a running model that its disk no longer gives."""
    return ModelError(
        f"{path.name} can no longer be read", why, "Check its disk, then load the model again."
    )


class MappedFile:
    """Mapping of a whole file, with the addresses of its pages."""

    def __init__(self, path: Path, closing: ExitStack) -> None:
        """Map a file until closing closes. Raises ModelError: it cannot be read."""
        self.path = path
        try:
            self._file = closing.enter_context(open_regular(path))
            mapping = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            closing.enter_context(mapping)
            self._state = self._current_state()
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read {path}", str(error)) from error
        self.address = np.frombuffer(mapping, np.uint8).ctypes.data
        """Of its first byte, until the mapping is closed, which no view of it may outlive."""
        self._pages_end = -(-len(mapping) // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def ranges(self, extent: Extent) -> list[tuple[int, int]]:
        """Addresses and sizes of the pages that an extent touches, in pieces."""
        first = extent.offset // mmap.PAGESIZE * mmap.PAGESIZE
        last = min(-(-extent.end // mmap.PAGESIZE) * mmap.PAGESIZE, self._pages_end)
        return [
            (self.address + start, min(_PIECE, last - start))
            for start in range(first, last, _PIECE)
        ]

    def fault(self) -> ModelError | None:
        """Why the file cannot be used any longer: changed or cut short since it was mapped.

        None while it can. Takes a microsecond.
        """
        try:
            is_same = self._current_state() == self._state
        except OSError as error:
            return unreadable(self.path, error.strerror or str(error))
        if is_same:
            return None
        return ModelError(
            f"{self.path.name} cannot be used any longer",
            "its file was changed while the model ran",
            "Load the model again.",
        )

    def _current_state(self) -> tuple[int, int]:
        stat = os.fstat(self._file.fileno())
        return stat.st_size, stat.st_mtime_ns


CAN_DROP = sys.platform == "linux"
"""Whether this system lets a program drop a range of a file from the cache."""

_MAPS = Path("/proc/self/maps")
_SHARED = "r--s"
_F_RDADVISE = 44
"""fcntl of macOS: read a range into the cache."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    offset: int
    end: int
    address: int


def read_ahead(file: MappedFile, offset: int, size: int) -> None:
    """Start reading a range into the cache. The system may decide otherwise."""
    if sys.platform == "linux":
        os.posix_fadvise(file.descriptor, offset, size, os.POSIX_FADV_WILLNEED)
    elif sys.platform == "darwin":
        import fcntl
        import struct

        fcntl.fcntl(file.descriptor, _F_RDADVISE, struct.pack("=qi", offset, size))
    else:
        from backends.streaming import windows_memory

        windows_memory.prefetch(file.address + offset, size)


class CacheDropper:
    """Drops ranges of a file, wherever this process maps them, from memory (Linux)."""

    def __init__(self, file: MappedFile) -> None:
        """Find the mappings of a file; an engine has to have made its own before."""
        self._file = file
        self._mapped = _mappings(file)

    def drop(self, extent: Extent) -> None:
        """Drop the pages that lie wholly in an extent; locked ones stay."""
        first = -(-extent.offset // PAGESIZE) * PAGESIZE
        last = extent.end // PAGESIZE * PAGESIZE
        if last <= first or sys.platform != "linux":
            return
        for mapped in self._mapped:
            start, end = max(first, mapped.offset), min(last, mapped.end)
            if start < end:
                memory_pages.unmap_pages(mapped.address + start - mapped.offset, end - start)
        os.posix_fadvise(self._file.descriptor, first, last - first, os.POSIX_FADV_DONTNEED)


def mapped_ranges(file: MappedFile) -> list[tuple[int, int]]:
    """Addresses and sizes of all mappings of a file in this process (Linux; none elsewhere)."""
    if sys.platform != "linux":
        return []
    return [(one.address, one.end - one.offset) for one in _mappings(file)]


def _mappings(file: MappedFile) -> list[_Mapped]:
    """Where a file is mapped to stay in this process, by whichever library. Source: proc(5)."""
    inode = str(os.fstat(file.descriptor).st_ino)
    found: list[_Mapped] = []
    with BRIEFLY_MAPPED:
        lines = _MAPS.read_text().splitlines()
    for line in lines:
        place, access, offset, _, its_inode, *_ = line.split(maxsplit=5)
        if its_inode == inode and access == _SHARED:  # of a private one, changes would be lost
            start, end = (int(part, 16) for part in place.split("-"))
            at = int(offset, 16)
            found.append(_Mapped(at, at + end - start, start))
    return found


_SECONDS = 0.8
_READ_AT_ONCE = 4 << 20
_READERS = 2
"""Pieces under way at once: the system's readahead keeps the disk as busy."""
_FEWEST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """Bytes per second read from the disk of a file, and the source of the figure."""

    bytes_per_second: float
    source: str


def measured_disk_speed(path: Path) -> DiskSpeed | None:
    """Measure reading a file past the system's cache, in about a second.

    Pieces of 4 MB are read in order, as a pass reads weights, from the middle of the file on. None
    where the cache cannot be passed by (a file system without direct reading, as in memory), or the
    file is too small or cannot be read.
    """
    try:
        size = path.stat().st_size if path.is_file() else 0
        if size < _FEWEST_BYTES:
            return None
        done, seconds = _read_for(path, size)
    except (OSError, ValueError):
        return None
    if done < _FEWEST_BYTES:
        return None
    source = f"measured: {done / 1e6:.0f} MB of {path.name} read from disk"
    return DiskSpeed(done / seconds, source)


def _read_for(path: Path, size: int) -> tuple[int, float]:
    """Bytes read of a file until time is up, and seconds; every piece is read at most once."""
    pieces = iter(_offsets(size))
    start = time.perf_counter()
    with ThreadPoolExecutor(_READERS) as pool:
        readers = [
            pool.submit(_read_pieces, path, pieces, start + _SECONDS) for _ in range(_READERS)
        ]
        done = sum(reader.result() for reader in readers)
    return done, time.perf_counter() - start


def _offsets(size: int) -> list[int]:
    """Offsets of all whole pieces, from the middle to the end, then from the start."""
    count = size // _READ_AT_ONCE
    return [index % count * _READ_AT_ONCE for index in range(count // 2, count // 2 + count)]


def _read_pieces(path: Path, pieces: Iterator[int], deadline: float) -> int:
    done = 0
    with (
        mmap.mmap(-1, _READ_AT_ONCE) as buffer,
        _open_uncached(path) as file,
    ):  # memory aligned to pages
        while time.perf_counter() < deadline:
            offset = next(pieces, None)
            if offset is None:
                break
            _forget(file, offset)
            file.seek(offset)
            done += file.readinto(memoryview(buffer)) or 0
    return done


def _forget(file: FileIO, offset: int) -> None:
    """Drop a piece from the page cache (Linux): compressed files are read through it anyway."""
    if sys.platform == "linux":
        os.posix_fadvise(file.fileno(), offset, _READ_AT_ONCE, os.POSIX_FADV_DONTNEED)


def _open_uncached(path: Path) -> FileIO:
    """Open a file for reading past the system's cache. Raises OSError: it cannot be opened so."""
    if sys.platform == "win32":
        from backends.streaming.windows_memory import open_unbuffered

        return FileIO(open_unbuffered(path))
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECT", 0)
    descriptor = os.open(path, flags)
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_NOCACHE, 1)
    return FileIO(descriptor)
