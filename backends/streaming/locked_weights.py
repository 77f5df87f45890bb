"""Weights locked in memory, where the engine's own mapping of the same file finds them."""

from collections.abc import Sequence
from time import monotonic

from backends.hardware.host import available_memory, memory_limit
from backends.streaming import memory_lock
from backends.streaming.lock_plan import LockPlan
from backends.streaming.mapped_file import MappedFile

_RESERVE = 256 << 20
"""Free memory below which locks are let go, on machines with 8 GB or more."""

_SHARE = 32
"""On smaller ones, and in containers, one part in so many of their memory."""

_LEAST_FREE = 64 << 20
"""Never locked: what this process itself needs from one moment to the next."""

_SECONDS_BETWEEN_LOOKS = 0.5
"""Looking takes 1 ms."""


class LockedWeights:
    """Locks the weights of a plan, as many as the system allows, and lets go under pressure.

    The most important are locked first and let go last. Locks end with this process at the latest.
    """

    def __init__(self, files: Sequence[MappedFile], plan: LockPlan) -> None:
        self._locks: list[tuple[int, int]] = []
        """Addresses and sizes of locked pages."""
        self.refusal = self._lock_all(files, plan)
        """Why less than the plan was locked, as the rest of a sentence; "" if all was."""
        self._reserve = min(_RESERVE, memory_limit() // _SHARE)
        self._looked = monotonic()

    @property
    def locked_bytes(self) -> int:
        """Bytes that are locked now."""
        return sum(size for _, size in self._locks)

    def _lock_all(self, files: Sequence[MappedFile], plan: LockPlan) -> str:
        memory_lock.allow_locking()
        for extent in plan.locked:
            for address, size in files[extent.file].ranges(extent):
                if available_memory() < size + _LEAST_FREE:
                    return "no more memory is free"  # beyond a container's limit, Linux kills
                try:
                    memory_lock.lock(address, size)
                except OSError as error:
                    return memory_lock.refusal(error)
                self._locks.append((address, size))
        return ""

    def relieve(self) -> int:
        """Let go of locks if other programs need memory; the bytes let go. For every pass."""
        now = monotonic()
        if now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return 0
        self._looked = now
        missing, let_go = self._reserve - available_memory(), 0
        while self._locks and let_go < missing:
            let_go += self._unlock_last()
        return let_go

    def release(self) -> None:
        """Let go of all locks. Safe to call again."""
        while self._locks:
            self._unlock_last()

    def _unlock_last(self) -> int:
        address, size = self._locks.pop()
        memory_lock.unlock(address, size)
        return size
