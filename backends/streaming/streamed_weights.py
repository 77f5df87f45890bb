"""Weights of a model larger than memory: a part is locked in it, the rest is read in every pass."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from backends.base import ModelError, PassStoppedError
from backends.base.model import pass_is_stopped
from backends.hardware.host import available_memory, memory_limit
from backends.streaming import mapped_file, memory_pages
from backends.streaming.mapped_file import CacheDropper, MappedFile, unreadable
from backends.streaming.memory_pages import PageGuard
from backends.streaming.pass_following import DropBehind, ExpertReader, PassPosition, Readahead
from backends.streaming.weight_plan import (
    LockPlan,
    beside_gpu,
    lock_plan,
    on_gpu,
    streamed_chunk,
    weight_layout,
)

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
        self, files: Sequence[MappedFile], plan: LockPlan, clock: Callable[[], float] = monotonic
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
        memory_pages.allow_locking()
        self.hold(plan)

    @property
    def locked_bytes(self) -> int:
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
        # Not where the system itself refuses more.
        may_lock = self.refusal in ("", _NO_MEMORY) and len(self._locks) < len(self._wanted)
        if may_lock and now - self._short >= _SECONDS_OF_CALM:
            self._short = now  # not sooner again than after such a while
            self.refusal = self._lock_missing(2 * self._reserve)
            self.has_let_go = self.has_let_go and self.refusal != ""

    def release(self) -> None:
        for pages in tuple(self._locks):
            self._unlock(pages)
        self._wanted = []

    def _lock_missing(self, least_free: int) -> str:
        """Lock what is wanted as long as so many bytes stay free; why not all of it, "" if all."""
        for pages in self._wanted:
            if pages in self._locks:
                continue
            address, size = pages
            if available_memory() < size + least_free or pass_is_stopped():
                return _NO_MEMORY  # beyond a container's limit, Linux kills
            try:
                memory_pages.lock(address, size)
            except OSError as error:
                return memory_pages.refusal(error)
            self._locks.add(pages)
        return ""

    def _unlock(self, pages: _Pages) -> int:
        self._locks.discard(pages)
        address, size = pages
        memory_pages.unlock(address, size)
        return size


class StreamedWeights:
    """Locks what a budget allows before an engine maps the files, and follows its passes."""

    def __init__(self, path: Path, lock_bytes: int, gpu_layers: int = 0) -> None:
        """Lock up to so many bytes of a model's weights.

        path: its first file. gpu_layers: copied to GPUs by the engine, as it counts them.

        Raises:
            ModelError: a file is missing, damaged or cannot be read.
            PassStoppedError: loading was stopped meanwhile.
        """
        whole = weight_layout(path)
        self._layout = beside_gpu(whole, gpu_layers)
        self._copied = on_gpu(whole, gpu_layers)
        self._plan = lock_plan(self._layout, lock_bytes)
        with ExitStack() as stack:
            self._files = [MappedFile(file, stack) for file in self._layout.files]
            self._locked = LockedWeights(self._files, self._plan)
            if pass_is_stopped():
                raise PassStoppedError
            self._closing = stack.pop_all()
        self._guard: PageGuard | None = None
        self._lost = False
        """Whether an earlier guard replaced weights by zeros, which stay."""
        self._position = PassPosition(self._layout.n_layers)
        self._drop: DropBehind | None = None
        self._readahead: Readahead | None = None
        self._experts: ExpertReader | None = None

    @property
    def locked_bytes(self) -> int:
        return min(self._locked.locked_bytes, self._plan.locked_bytes)

    @property
    def chunk(self) -> int:
        layout = self._layout
        used = (
            one.extent.size * layout.share(one.role, 1)
            for one in layout.tensors
            if one.layer is not None
        )
        return streamed_chunk(round(max(used, default=0)))

    def read_bytes_per_token(self, expert_share: float) -> int:
        """Bytes read from disk for one token, as far as it is planned what stays in memory.

        expert_share: of the experts that one token uses; a drafter may use fewer than its target.
        """
        read = replace(self._plan, expert_share=expert_share).read_bytes()
        if mapped_file.CAN_DROP:  # what is held then stays without locks, too
            return read
        return read + self._plan.locked_bytes - self.locked_bytes

    @property
    def refusal(self) -> str:
        return self._locked.refusal

    @property
    def shortage(self) -> str:
        if not self._locked.has_let_go:
            return ""
        return "other programs need memory, so fewer weights are held in it: answers are slower"

    def hold(self, lock_bytes: int) -> None:
        plan = lock_plan(self._layout, lock_bytes)
        if plan == self._plan:
            return
        self._plan = plan
        self._locked.hold(plan)
        self.follow()

    def follow(self) -> None:
        """Follow passes from now on: the engine has mapped the files.

        What streams is read ahead of each pass, and dropped behind it where the system allows that.
        What GPUs have a copy of is dropped for good. To be called again when an engine has mapped
        the files once more, or let go of a mapping.
        """
        if not self._files:
            return
        self._end_threads()
        mapped = [each for file in self._files for each in mapped_file.mapped_ranges(file)]
        for address, size in mapped:
            memory_pages.read_normally(address, size)
        guard = PageGuard(mapped)
        if self._guard is not None:
            self._lost = self._has_lost
            self._guard.close()
        self._guard = guard
        if self._copied and mapped_file.CAN_DROP:
            droppers = [CacheDropper(file) for file in self._files]
            for tensor in self._copied:
                droppers[tensor.extent.file].drop(tensor.extent)
        if not self._plan.streamed:
            return
        n_layers = self._layout.n_layers
        self._experts = ExpertReader(
            self._files, self._plan, self._layout.n_experts, available_memory()
        )
        if mapped_file.CAN_DROP:
            self._drop = DropBehind(self._files, self._plan, n_layers)
            self._drop.end()
        self._readahead = Readahead(self._files, self._plan, n_layers, available_memory())

    @property
    def reads_experts(self) -> bool:
        return self._plan.expert_bytes > 0

    def choose(self, layer: int, experts: Iterable[int]) -> None:
        if self._experts is not None:
            with suppress(OSError):  # the engine then reads by itself
                self._experts.choose(layer, experts)

    def begin_pass(self) -> None:
        """Check the files, let go of locks if other programs need memory, and follow a pass.

        Raises:
            ModelError: a file was changed, or its disk does not answer.
        """
        if (fault := self._fault()) is not None:
            raise fault
        self._locked.relieve()
        self._locked.retake()
        self._position.begin()
        if self._drop is not None:
            self._drop.begin()

    def advance(self) -> bool:
        """Count an operation of the pass; whether it has to end, as weights are lost."""
        self._locked.relieve()  # a pass may take a minute
        if not self._position.advance():
            return self._has_lost
        if self._readahead is not None:
            self._readahead.reach(self._position.layer)
        if self._drop is not None:
            self._drop.reach(self._position.layer)
        return self._fault() is not None

    def end_pass(self, *, is_whole: bool) -> ModelError | None:
        """Drop what a pass has used last, and start reading for the next one.

        is_whole: whether it ran to its end. Returns why its results mean nothing: a file was
        changed meanwhile, or could not be read; else None.
        """
        if is_whole:
            self._position.end()
        if self._drop is not None:
            self._drop.end()
        if self._readahead is not None:
            self._readahead.begin()
        return self._fault()

    def _fault(self) -> ModelError | None:
        for file in self._files:
            if (fault := file.fault()) is not None:
                return fault
        if self._has_lost:
            return unreadable(self._layout.files[0], "reading it from disk failed")
        return None

    @property
    def _has_lost(self) -> bool:
        return self._lost or (self._guard is not None and self._guard.has_lost)

    def settle(self) -> None:
        """Finish what is done beside passes; to be called before an engine ends a mapping."""
        if self._drop is not None:
            self._drop.wait()

    def close(self) -> None:
        """Let go of all weights and files. Safe to call again."""
        self._end_threads()
        self._locked.release()
        if self._guard is not None:
            self._guard.close()
        self._files = []
        self._closing.close()

    def _end_threads(self) -> None:
        if self._readahead is not None:
            self._readahead.close()
        if self._drop is not None:
            self._drop.close()
        self._drop = self._readahead = self._experts = None
