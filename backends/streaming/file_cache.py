"""The system's cache of a file: reading a range into it ahead of use, and dropping one."""

import os
import sys
from dataclasses import dataclass
from mmap import PAGESIZE
from pathlib import Path

from backends.files.brief_mapping import BRIEFLY_MAPPED
from backends.streaming import memory_lock
from backends.streaming.mapped_file import MappedFile
from backends.streaming.weight_layout import Extent

CAN_DROP = sys.platform == "linux"
"""Whether this system lets a program drop a range of a file from the cache."""

_MAPS = Path("/proc/self/maps")
_SHARED = "r--s"
_F_RDADVISE = 44
"""fcntl of macOS: read a range into the cache."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A range of a file that is mapped in this process."""

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
                memory_lock.unmap_pages(mapped.address + start - mapped.offset, end - start)
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
