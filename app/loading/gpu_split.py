"""How many layers of a model fit on GPUs, and what is left for the processor."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from backends.streaming.gpu_part import LayerBytes, beside_gpu, layer_bytes
from backends.streaming.streamed_chunk import STREAMED_CHUNK
from backends.streaming.weight_layout import Role, WeightLayout
from models.metadata.memory_bill import compute_bytes
from models.metadata.model_facts import ModelFacts

GPU_RESERVE = 1 << 30
"""Bytes of each GPU that stay free: as many as llama.cpp's own programs leave (fit_params_target in
its common/common.h). Not measured here."""


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """Memory of GPUs in bytes.

    free: of each, in the engine's order. reserved: of all together, for drafters.
    """

    free: tuple[int, ...]
    reserved: int = 0

    @property
    def usable(self) -> tuple[int, ...]:
        """What each has for a model; drafters take theirs from each in proportion."""
        total = max(sum(self.free), 1)
        return tuple(one - GPU_RESERVE - self.reserved * one // total for one in self.free)


@dataclass(frozen=True, slots=True)
class GpuSplit:
    """A model divided between GPUs and the processor. Sizes are in bytes.

    gpu_layers: as the engine counts them: the output head is the first, the last layers follow.
    n_layers: of the model. weights, cache: on the GPUs; read: there, by a pass over one token.
    beside: weights that stay with the processor; beside_cache: keys, values and running states that
    do.
    """

    gpu_layers: int
    n_layers: int
    weights: int
    cache: int
    read: int
    beside: WeightLayout
    beside_cache: int

    @property
    def is_whole(self) -> bool:
        """Whether all layers are on GPUs."""
        return self.gpu_layers > self.n_layers

    @property
    def words(self) -> str:
        """How many layers are on GPUs: "32 of 80 layers on the GPU"."""
        return f"{max(self.gpu_layers - 1, 0)} of {self.n_layers} layers on the GPU"


def fullest_split(layout: WeightLayout, facts: ModelFacts, n_ctx: int, room: GpuRoom) -> GpuSplit:
    """The division with the most layers on GPUs that fit there.

    A layer takes its weights, keys and values, or a running state with its copies. Each GPU needs
    working memory, too, and while layers are left to the processor, room for its largest tensor:
    passes of 32 tokens and more copy them to a GPU, one at a time. The memory of a GPU is taken to
    be faster than the processor's; then the fullest division is the fastest.
    """
    parts, kept = layer_bytes(layout), facts.layer_bytes(n_ctx)
    working = compute_bytes(facts, n_ctx, STREAMED_CHUNK)
    usable = [one - working for one in room.usable]
    if _fits(parts, kept, len(parts), room.free, usable):
        return split_at(layout, facts, n_ctx, len(parts))
    largest = max((one.extent.size for one in layout.tensors if one.role != Role.ROWS), default=0)
    usable = [one - largest for one in usable]
    counts = range(len(parts) - 1, 0, -1)
    fitting = (count for count in counts if _fits(parts, kept, count, room.free, usable))
    return split_at(layout, facts, n_ctx, next(fitting, 0))


def split_at(layout: WeightLayout, facts: ModelFacts, n_ctx: int, gpu_layers: int) -> GpuSplit:
    """The division with so many layers on GPUs, whether they fit there or not."""
    parts, n_layers = layer_bytes(layout), layout.n_layers
    count = min(gpu_layers, len(parts))
    chosen = parts[len(parts) - count :]
    beside = beside_gpu(layout, count)
    kept = facts.layer_bytes(n_ctx)
    return GpuSplit(
        count,
        n_layers,
        weights=sum(part.stored for part in chosen),
        cache=sum(kept[beside.n_layers :]),
        read=sum(part.read for part in chosen),
        beside=beside,
        beside_cache=sum(kept[: beside.n_layers]),
    )


def _fits(
    parts: Sequence[LayerBytes],
    kept: Sequence[int],
    count: int,
    free: Sequence[int],
    usable: Sequence[int],
) -> bool:
    """Whether the last parts fit on the GPUs that the engine puts them on.

    kept: what a context keeps of each layer. Of several GPUs each gets consecutive layers, in
    proportion to its free memory (load_tensors in src/llama-model.cpp).
    """
    ends = list(accumulate(free))
    needed = [0 for _ in free]
    first = len(parts) - count
    for index, part in enumerate(parts[first:]):
        gpu = min(bisect_right(ends, index / count * ends[-1]), len(free) - 1)
        needed[gpu] += part.stored + sum(kept[first + index : first + index + 1])
    return all(size <= room for size, room in zip(needed, usable, strict=True))
