"""Dropping streamed weights from memory once a pass has used them, so that they displace nothing.

Otherwise the system drops, of all weights, those that were used least recently: of a file that is
read round and round and does not fit, it then keeps nothing. Weights to be held stay in memory
even where locks are refused, other programs keep theirs, and a pass spends no time on making room.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import PAGESIZE
from pathlib import Path

from backends.streaming import memory_lock
from backends.streaming.lock_plan import LockPlan
from backends.streaming.mapped_file import MappedFile

_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A range of a file that is mapped in this process."""

    offset: int
    end: int
    address: int


class DropBehind:
    """Follows a pass through the layers, and drops those behind it from the cache of files.

    An engine tells how many operations it has done, not where it is; as layers are alike, the
    share of the operations of the pass before gives the layer. A layer more is left alone, and a
    layer dropped too early is only read again.
    """

    def __init__(self, files: Sequence[MappedFile], plan: LockPlan, n_layers: int) -> None:
        """Follow an engine that has mapped the files already."""
        self._files = files
        self._mapped = [_mappings(file) for file in files]
        self._by_layer = [
            [one.extent for one in plan.streamed if one.layer == layer]
            for layer in (*range(n_layers), None)
        ]
        self._operations = 0
        self._usual_operations = 0
        """Of the last whole pass; 0 before the first."""
        self._dropped = 0
        """Layers dropped in this pass."""
        self._next = 0
        """Operation at which the next layer is dropped."""

    def begin(self) -> None:
        """Start following a pass."""
        self._operations = self._dropped = 0
        self._next = self._due()

    def advance(self) -> None:
        """Count an operation of the pass."""
        self._operations += 1
        if self._operations >= self._next:
            self._drop(self._dropped)
            self._dropped += 1
            self._next = self._due()

    def end(self) -> None:
        """Drop what is left after a whole pass."""
        self._usual_operations = self._operations
        self.drop_all(self._dropped)

    def drop_all(self, first_layer: int = 0) -> None:
        """Drop everything that streams, from a layer on."""
        for layer in range(first_layer, len(self._by_layer)):
            self._drop(layer)

    def _due(self) -> int:
        n_layers = len(self._by_layer) - 1
        if not self._usual_operations or self._dropped >= n_layers:
            return sys.maxsize
        return -(-self._usual_operations * (self._dropped + 2) // n_layers)

    def _drop(self, layer: int) -> None:
        for extent in self._by_layer[layer]:
            first = -(-extent.offset // PAGESIZE) * PAGESIZE
            last = extent.end // PAGESIZE * PAGESIZE
            if last <= first:
                continue
            for mapped in self._mapped[extent.file]:
                start, end = max(first, mapped.offset), min(last, mapped.end)
                if start < end:
                    memory_lock.unmap_pages(mapped.address + start - mapped.offset, end - start)
            if sys.platform == "linux":
                file = self._files[extent.file].descriptor
                os.posix_fadvise(file, first, last - first, os.POSIX_FADV_DONTNEED)


def can_drop_behind() -> bool:
    """Whether this system lets a program drop pages of a file from its cache."""
    return sys.platform == "linux"


def _mappings(file: MappedFile) -> list[_Mapped]:
    """Where a file is mapped in this process, by whichever library."""
    inode = str(os.fstat(file.descriptor).st_ino)
    found: list[_Mapped] = []
    for line in _MAPS.read_text().splitlines():
        place, _, offset, _, its_inode, *_ = line.split(maxsplit=5)
        if its_inode == inode:
            start, end = (int(part, 16) for part in place.split("-"))
            at = int(offset, 16)
            found.append(_Mapped(at, at + end - start, start))
    return found
