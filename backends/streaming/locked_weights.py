"""Weights locked in memory, where the engine's own mapping of the same file finds them."""

import mmap
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import numpy as np

from backends.base import ModelError
from backends.base.regular_file import open_regular
from backends.hardware.host import available_memory
from backends.streaming import memory_lock
from backends.streaming.lock_plan import LockPlan
from backends.streaming.weight_layout import Extent

_PIECE = 16 << 20
"""Locked at once: as much as is let go at once."""

_RESERVE = 256 << 20
"""Free memory below which locks are let go, unless even less was free after locking."""

_LEAST_FREE = 64 << 20
"""Never locked: what this process itself needs from one moment to the next."""

_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, slots=True)
class _Lock:
    """Locked pages."""

    address: int
    size: int


class LockedWeights:
    """Maps a model's files, locks the weights of a plan and lets go of them under pressure.

    As many of the plan's weights as the system allows are locked, in order of importance. Locks
    belong to this process and end with it.
    """

    def __init__(self, files: tuple[Path, ...], plan: LockPlan) -> None:
        """Lock the weights of a plan.

        Raises:
            ModelError: a file cannot be read.
        """
        self._locks: list[_Lock] = []
        self._closing = ExitStack()
        self._files = [_MappedFile(path, self._closing) for path in files]
        self.refusal = self._lock_all(plan)
        self._reserve = min(_RESERVE, available_memory() // 2)
        self._looked = monotonic()

    @property
    def locked_bytes(self) -> int:
        """Bytes that are locked now."""
        return sum(lock.size for lock in self._locks)

    def _lock_all(self, plan: LockPlan) -> str:
        """Lock the weights of a plan; why fewer are, "" if all are."""
        memory_lock.allow_locking()
        for extent in plan.locked:
            for lock in self._files[extent.file].pages(extent):
                if available_memory() < lock.size + _LEAST_FREE:
                    # Locking beyond a container's limit would end the process.
                    return "no more memory is free"
                try:
                    memory_lock.lock(lock.address, lock.size)
                except OSError as error:
                    return memory_lock.refusal(error)
                self._locks.append(lock)
        return ""

    def relieve(self) -> int:
        """Let go of locks if other programs need memory; bytes let go. To be called per pass."""
        now = monotonic()
        if now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return 0
        self._looked = now
        missing, let_go = self._reserve - available_memory(), 0
        while self._locks and let_go < missing:
            lock = self._locks.pop()  # the least important was locked last
            memory_lock.unlock(lock.address, lock.size)
            let_go += lock.size
        return let_go

    def check_files(self) -> None:
        """Refuse to go on with files that were changed or cut short since they were mapped.

        Reading past the end of a mapped file ends the process, so this comes before each pass.

        Raises:
            ModelError: a file was changed, or its disk does not answer.
        """
        for file in self._files:
            file.check()

    def release(self) -> None:
        """Let go of all locks and close the files. Safe to call again."""
        while self._locks:
            lock = self._locks.pop()
            memory_lock.unlock(lock.address, lock.size)
        self._closing.close()


class _MappedFile:
    """A file, mapped for reading, and what it was when that was done."""

    def __init__(self, path: Path, closing: ExitStack) -> None:
        self._path = path
        try:
            self._file = closing.enter_context(open_regular(path))
            mapping = closing.enter_context(
                mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            )
            self._state = self._current_state()
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read {path}", str(error)) from error
        # The address stays valid until the mapping is closed; the view must not outlive this line.
        self._address = np.frombuffer(mapping, np.uint8).ctypes.data
        self._size = len(mapping)

    def pages(self, extent: Extent) -> list[_Lock]:
        """Whole pages of a range, in pieces."""
        first = extent.offset // mmap.PAGESIZE * mmap.PAGESIZE
        last = min(-(-extent.end // mmap.PAGESIZE) * mmap.PAGESIZE, self._rounded_size())
        return [
            _Lock(self._address + start, min(_PIECE, last - start))
            for start in range(first, last, _PIECE)
        ]

    def _rounded_size(self) -> int:
        return -(-self._size // mmap.PAGESIZE) * mmap.PAGESIZE

    def _current_state(self) -> tuple[int, int]:
        stat = os.fstat(self._file.fileno())
        return stat.st_size, stat.st_mtime_ns

    def check(self) -> None:
        try:
            is_same = self._current_state() == self._state
        except OSError as error:
            raise ModelError(
                f"{self._path} can no longer be read", str(error), "Load the model again."
            ) from error
        if not is_same:
            raise ModelError(
                f"{self._path.name} cannot be used any longer",
                "its file was changed while the model ran",
                "Load the model again.",
            )
