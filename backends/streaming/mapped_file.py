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


def unreadable(path: Path, why: str) -> ModelError:
    """Error for a file of a running model that its disk no longer gives."""
    return ModelError(
        f"{path.name} can no longer be read", why, "Check its disk, then load the model again."
    )


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
