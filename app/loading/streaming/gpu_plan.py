"""Plans a model that GPUs cannot hold whole: some layers there, the rest in memory or on disk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from app.loading.gpu_split import GpuRoom, GpuSplit, fullest_split, split_at
from app.loading.memory_plan import SMALLEST_CONTEXT, MemoryPlan
from app.loading.streaming.stream_plan import stream_plan
from backends.base import OutOfMemoryError
from backends.streaming.weight_layout import WeightLayout
from models.byte_sizes import gigabytes
from models.metadata.memory_bill import MemoryBill, compute_bytes, host_bytes
from models.metadata.model_facts import ModelFacts


@dataclass(frozen=True, slots=True)
class GpuPlanner:
    """Plans one model for GPUs with memory of their own, and for the processor beside them.

    asked: tokens of context the user wants, None for usual or what fits. gpu_layers: those the user
    wants on GPUs, as the engine counts them, None for all that fit. gpus: free bytes of each GPU;
    free: of the machine's memory.
    """

    name: str
    facts: ModelFacts
    layout: WeightLayout
    asked: int | None
    usual: int
    gpu_layers: int | None
    gpus: tuple[int, ...]
    free: int

    def plan(self, reserved: int = 0) -> MemoryPlan:
        """Plan a model that GPUs, with what they leave to the processor's memory, can hold.

        All layers go to GPUs if they fit there with any context; the plan then has no split.
        reserved: bytes of GPUs for drafters, which a whole model does not leave.

        Raises:
            OutOfMemoryError: the processor's part does not fit in memory.
        """
        if self._wanted > (self.facts.context_limit or self._wanted):
            return MemoryPlan(self._wanted, self._wanted, None)  # the backend rejects it
        whole = (n_ctx for n_ctx in self._contexts if self.split(n_ctx).is_whole)
        if (n_ctx := next(whole, None)) is not None:
            return MemoryPlan(n_ctx, self._wanted, None)
        for n_ctx in self._contexts:
            split = self.split(n_ctx, reserved)
            if self._beside(split, n_ctx).total <= self.free:
                return MemoryPlan(n_ctx, self._wanted, None, split=split)
        raise self._refusal(self._contexts[-1])

    def streamed(self, reserved: int = 0) -> MemoryPlan:
        """Plan a model whose layers on the processor stream from disk in part.

        reserved: bytes of GPUs for drafters.

        Raises:
            OutOfMemoryError: context and working memory alone do not fit.
        """
        planned = stream_plan(self.name, self.facts, self.asked, self.usual, self.free)
        assert planned.lock_bytes is not None
        split = self.split(planned.n_ctx, reserved)
        lock_bytes = planned.lock_bytes + split.cache  # what GPUs take of the context
        return replace(planned, room=reserved, lock_bytes=lock_bytes, split=split)

    def split(self, n_ctx: int, reserved: int = 0) -> GpuSplit:
        """The division for a context."""
        if self.gpu_layers is not None:
            return split_at(self.layout, self.facts, n_ctx, self.gpu_layers)
        return fullest_split(self.layout, self.facts, n_ctx, GpuRoom(self.gpus, reserved))

    @property
    def _wanted(self) -> int:
        return self.asked or min(self.facts.context_limit or self.usual, self.usual)

    @property
    def _contexts(self) -> Sequence[int]:
        """Contexts to try, from the one wanted down to the smallest."""
        return [self._wanted] if self.asked else list(_halved(self._wanted))

    def _beside(self, split: GpuSplit, n_ctx: int) -> MemoryBill:
        """What the processor's part takes of the machine's memory."""
        compute = compute_bytes(self.facts, n_ctx) + host_bytes(self.facts, n_ctx)
        return MemoryBill(split.beside.weight_bytes, split.beside_cache, compute)

    def _refusal(self, n_ctx: int) -> OutOfMemoryError:
        split = self.split(n_ctx)
        needed = self._beside(split, n_ctx)
        return OutOfMemoryError(
            f"{self.name} with a context of {n_ctx:,} tokens needs {gigabytes(needed.total)} of "
            "memory beside the GPU",
            f"{split.words}; the rest takes {needed.words}, and {gigabytes(self.free)} are free",
            "Choose a smaller model or quantization, or free some memory.",
        )


def _halved(n_ctx: int) -> Iterator[int]:
    """A context and its halves, down to the smallest."""
    yield n_ctx
    while n_ctx // 2 >= SMALLEST_CONTEXT:
        n_ctx //= 2
        yield n_ctx
