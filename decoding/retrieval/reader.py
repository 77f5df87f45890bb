"""Reads a segment's file where a search leads, and holds little of it in memory."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

from decoding.retrieval.segment_file import KEY_BYTES, TOKEN_BYTES, Head

_SMALL = 1 << 22
"""Bytes up to which a file may be in memory as a whole."""


class Reader:
    """order: of the suffixes, mapped into memory. samples: read whole.

    The text of a large file is read, not mapped, where the system can read at an offset: the places
    that a search compares are spread over it, and each would map many pages more than it needs.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self._offset = head.text_offset
        self._is_small = head.size <= _SMALL
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(self._file)
            raise
        self._view = memoryview(self._map)
        self.order = self._view[head.order_offset : head.samples_offset].cast("I")
        held = self._map[head.samples_offset : head.size]
        self.samples = [held[start : start + KEY_BYTES] for start in range(0, len(held), KEY_BYTES)]
        self.let_go()

    def reading(self, count: int) -> Callable[[int], bytes]:
        """What gives the count tokens of the text at a place, or as many as there are.

        It raises OSError where they cannot be read.
        """
        offset, size, file, mapped = self._offset, TOKEN_BYTES * count, self._file, self._map
        read = getattr(os, "pread", None)
        if read and not self._is_small:
            return lambda place: read(file, size, offset + TOKEN_BYTES * place)

        def from_map(place: int) -> bytes:
            begin = offset + TOKEN_BYTES * place
            return mapped[begin : begin + size]

        return from_map

    def let_go(self) -> None:
        """Give back the memory that searches touched; the pages stay in the system's cache."""
        if hasattr(mmap, "MADV_DONTNEED") and not self._is_small:
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Let go of the file."""
        self.order.release()
        self._view.release()
        self._map.close()
        os.close(self._file)
