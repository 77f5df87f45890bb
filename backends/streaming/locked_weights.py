"""Weights locked in memory, where the engine's own mapping of the same file finds them."""

from collections.abc import Callable, Sequence
from time import monotonic

from backends.base.pass_stop import pass_is_stopped
from backends.hardware.host import available_memory, memory_limit
from backends.streaming import memory_lock
from backends.streaming.lock_plan import LockPlan
from backends.streaming.mapped_file import MappedFile

_Pages = tuple[int, int]
"""Address and size of a range of pages."""

_RESERVE = 256 << 20
"""Free memory below which locks are let go, on machines with 8 GB or more."""

_SHARE = 16
"""On smaller ones, and in containers, one part in so many of their memory. With 32, and looks every
0.5 s between passes, a program that took 50 MB/s in a group of 1,100 MB had this one killed."""

_LEAST_FREE = 64 << 20
"""Never locked: what this process itself needs from one moment to the next."""

_SECONDS_BETWEEN_LOOKS = 0.2
"""Looking takes 1 ms."""

_SECONDS_OF_CALM = 10.0
"""Time without a shortage after which what was let go is locked again: programs that need memory
for a moment may need it again. A guess; not measured."""

_NO_MEMORY = "no more memory is free"


class LockedWeights:
    """Locks the weights of a plan, as many as the system allows, and lets go under pressure.

    The most important are locked first and let go last. What was let go is locked again once memory
    has been free for a while. Locks end with this process at the latest.
    """

    def __init__(
        self,
        files: Sequence[MappedFile],
        plan: LockPlan,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._files = files
        self._clock = clock
        self._wanted: list[_Pages] = []
        """What the plan holds, the most important first."""
        self._locks: set[_Pages] = set()
        self._reserve = min(_RESERVE, memory_limit() // _SHARE)
        self._looked = self._short = clock()
        self.has_let_go = False
        """Whether locks were let go since they were last complete."""
        self.refusal = ""
        """Why less than the plan was locked, as the rest of a sentence; "" if all was."""
        memory_lock.allow_locking()
        self.hold(plan)

    @property
    def locked_bytes(self) -> int:
        """Bytes that are locked now."""
        return sum(size for _, size in self._locks)

    def hold(self, plan: LockPlan) -> None:
        """Lock what a plan holds from now on, and let go of the rest."""
        wanted = (
            pages for extent in plan.locked for pages in self._files[extent.file].ranges(extent)
        )
        self._wanted = list(dict.fromkeys(wanted))  # small tensors share a page
        for pages in self._locks.difference(self._wanted):
            self._unlock(pages)
        self.has_let_go = False
        self.refusal = self._lock_missing(_LEAST_FREE)

    def relieve(self) -> int:
        """Let go of locks if other programs need memory; the bytes let go. At any time."""
        now = self._clock()
        if now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return 0
        self._looked = now
        missing, let_go = self._reserve - available_memory(), 0
        for pages in reversed(self._wanted):
            if let_go >= missing:
                break
            if pages in self._locks:
                let_go += self._unlock(pages)
        if missing > 0:
            self._short = now
        self.has_let_go |= let_go > 0
        return let_go

    def retake(self) -> None:
        """Lock again what was let go, once other programs have needed none for a while.

        Takes as long as reading it. Not during a pass.
        """
        now = self._clock()
        if self._may_retake and now - self._short >= _SECONDS_OF_CALM:
            self._short = now  # not sooner again than after such a while
            self.refusal = self._lock_missing(2 * self._reserve)
            self.has_let_go = self.has_let_go and self.refusal != ""

    def release(self) -> None:
        """Let go of all locks. Safe to call again."""
        for pages in tuple(self._locks):
            self._unlock(pages)
        self._wanted = []

    @property
    def _may_retake(self) -> bool:
        """Whether more was locked, or could be: not where the system itself refuses it."""
        is_refused = self.refusal not in ("", _NO_MEMORY)
        return not is_refused and len(self._locks) < len(self._wanted)

    def _lock_missing(self, least_free: int) -> str:
        """Lock what is wanted as long as so many bytes stay free; why not all of it, "" if all."""
        for pages in self._wanted:
            if pages in self._locks:
                continue
            address, size = pages
            if available_memory() < size + least_free or pass_is_stopped():
                return _NO_MEMORY  # beyond a container's limit, Linux kills
            try:
                memory_lock.lock(address, size)
            except OSError as error:
                return memory_lock.refusal(error)
            self._locks.add(pages)
        return ""

    def _unlock(self, pages: _Pages) -> int:
        self._locks.discard(pages)
        address, size = pages
        memory_lock.unlock(address, size)
        return size
