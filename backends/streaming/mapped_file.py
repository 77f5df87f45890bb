"""A model's file, mapped for reading, and the system's cache of it."""

import mmap
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
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
