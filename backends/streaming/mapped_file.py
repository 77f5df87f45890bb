"""A model's file, mapped for reading, and whether it is still what was mapped."""

import mmap
import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from backends.base import ModelError
from backends.base.regular_file import open_regular
from backends.streaming.weight_layout import Extent

_PIECE = 16 << 20
"""Most bytes of one range: locked, and let go, at once."""


class MappedFile:
    """Mapping of a whole file, with the addresses of its pages."""

    def __init__(self, path: Path, closing: ExitStack) -> None:
        """Map a file until closing closes.

        Raises:
            ModelError: it cannot be read.
        """
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
        """Descriptor of the open file."""
        return self._file.fileno()

    def ranges(self, extent: Extent) -> list[tuple[int, int]]:
        """Addresses and sizes of the pages that an extent touches, in pieces."""
        first = extent.offset // mmap.PAGESIZE * mmap.PAGESIZE
        last = min(-(-extent.end // mmap.PAGESIZE) * mmap.PAGESIZE, self._pages_end)
        return [
            (self.address + start, min(_PIECE, last - start))
            for start in range(first, last, _PIECE)
        ]

    def check(self) -> None:
        """Refuse a file that was changed or cut short since it was mapped.

        Reading past the end of a mapped file ends the process.

        Raises:
            ModelError: it was, or its disk does not answer.
        """
        try:
            is_same = self._current_state() == self._state
        except OSError as error:
            why = error.strerror or str(error)
            raise ModelError(
                f"{self.path.name} can no longer be read", why, "Load the model again."
            ) from error
        if not is_same:
            raise ModelError(
                f"{self.path.name} cannot be used any longer",
                "its file was changed while the model ran",
                "Load the model again.",
            )

    def _current_state(self) -> tuple[int, int]:
        stat = os.fstat(self._file.fileno())
        return stat.st_size, stat.st_mtime_ns
