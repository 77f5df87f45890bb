"""Random access to a segment's file with little memory."""

import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

from decoding.drafters.retrieval.segment_file import KEY_BYTES, TOKEN_BYTES, Head

_SMALL = 1 << 22
"""Size in bytes up to which a file may stay in memory as a whole."""


class Reader:
    """Reads text, suffix order and samples of a segment.

    order: mapped into memory. samples: read whole. The text of a large file is read rather than
    mapped where the system supports reads at an offset: the positions that a search compares are
    spread over it, and each would map many more pages than it needs.
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
        self.release_pages()

    def reading(self, count: int) -> Callable[[int], bytes]:
        """A function that reads up to count tokens of the text at a position.

        It raises OSError if they cannot be read.
        """
        offset, size, file, mapped = self._offset, TOKEN_BYTES * count, self._file, self._map
        read = getattr(os, "pread", None)
        if read and not self._is_small:
            return lambda position: read(file, size, offset + TOKEN_BYTES * position)

        def from_map(position: int) -> bytes:
            begin = offset + TOKEN_BYTES * position
            return mapped[begin : begin + size]

        return from_map

    def release_pages(self) -> None:
        """Release the memory that searches touched; the pages stay in the system's cache."""
        if sys.platform != "win32" and not self._is_small:
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Close the file."""
        self.order.release()
        self._view.release()
        self._map.close()
        os.close(self._file)
