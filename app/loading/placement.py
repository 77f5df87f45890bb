"""Where a model's weights and context go: memory, GPUs, and the disk for what fits neither."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate

from backends.base import (
    Context,
    DraftUnavailableError,
    Model,
    ModelInfo,
    OutOfMemoryError,
    SpecchatError,
    UsageError,
    check_context,
)
from backends.engines.engine_facts import free_memory, separate_gpus
from backends.streaming.weight_plan import (
    STREAMED_CHUNK,
    LayerBytes,
    Role,
    WeightLayout,
    beside_gpu,
    layer_bytes,
)
from models.byte_sizes import gigabytes
from models.metadata.memory_bill import (
    MemoryBill,
    ModelFacts,
    bill,
    compute_bytes,
    facts_of_target,
    host_bytes,
)

GPU_RESERVE = 1 << 30
"""Bytes of each GPU that stay free: as many as llama.cpp's own programs leave (fit_params_target in
its common/common.h). Not measured here."""


def usable(gpus: Sequence[int], reserved: int = 0) -> list[int]:
    """Bytes that each GPU has for a model; drafters take theirs from each in proportion."""
    total = max(sum(gpus), 1)
    return [one - GPU_RESERVE - reserved * one // total for one in gpus]


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
        return self.gpu_layers > self.n_layers

    @property
    def words(self) -> str:
        """How many layers are on GPUs: "32 of 80 layers on the GPU"."""
        return f"{max(self.gpu_layers - 1, 0)} of {self.n_layers} layers on the GPU"


def fullest_split(
    layout: WeightLayout, facts: ModelFacts, n_ctx: int, gpus: Sequence[int], reserved: int = 0
) -> GpuSplit:
    """The division with the most layers on GPUs that fit there.

    gpus: free bytes of each, in the engine's order. reserved: of all together, for drafters.

    A layer takes its weights, keys and values, or a running state with its copies. Each GPU needs
    working memory, too, and while layers are left to the processor, room for its largest tensor:
    passes of 32 tokens and more copy them to a GPU, one at a time. The memory of a GPU is taken to
    be faster than the processor's; then the fullest division is the fastest.
    """
    parts, kept = layer_bytes(layout), facts.layer_bytes(n_ctx)
    working = compute_bytes(facts, n_ctx, STREAMED_CHUNK)
    room = [one - working for one in usable(gpus, reserved + facts.projector_bytes)]
    if _fits(parts, kept, len(parts), gpus, room):
        return split_at(layout, facts, n_ctx, len(parts))
    largest = max((one.extent.size for one in layout.tensors if one.role != Role.ROWS), default=0)
    room = [one - largest for one in room]
    counts = range(len(parts) - 1, 0, -1)
    fitting = (count for count in counts if _fits(parts, kept, count, gpus, room))
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


def free_for_models(backend: str, gpu_layers: int | None) -> int | None:
    """Bytes free for models: of GPUs with memory of their own, if there are; None if unknown.

    Raises:
        ModelError: the engine cannot be started.
    """
    free = free_memory(backend, gpu_layers)
    if free is None and (gpus := separate_gpus(backend, gpu_layers)):
        free = sum(usable([gpu.free_bytes or 0 for gpu in gpus]))
    return free


SMALLEST_CONTEXT = 512
"""Tokens below which no context is reduced, nor asked for: fewer hold no conversation."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Tokens of context, and the bytes left for drafters.

    usual: the context without a shortage. room: None where free memory is unknown. lock_bytes:
    memory for weights of a model that streams from disk, None for one that fits. split: None for a
    model that runs on one device.
    """

    n_ctx: int
    usual: int
    room: int | None
    lock_bytes: int | None = None
    split: GpuSplit | None = None


def plan(
    name: str, facts: ModelFacts, asked: int | None, usual: int, free: int | None
) -> MemoryPlan:
    """Choose the context of a model: the one asked for, else the largest up to usual tokens.

    free: bytes of memory, None if unknown.

    Raises:
        OutOfMemoryError: the context asked for, or even the smallest one, does not fit.
    """
    wanted = asked or min(facts.context_limit or usual, usual)
    if free is None or wanted > (facts.context_limit or wanted):
        # A GPU reports a shortage on opening; the backend rejects a context over the model's limit.
        return MemoryPlan(wanted, wanted, None)
    least = wanted if asked else min(wanted, SMALLEST_CONTEXT)
    n_ctx = largest_context(facts, wanted, least, free)
    if n_ctx is None:
        needed = bill(facts, least)
        raise OutOfMemoryError(
            f"{name} with a context of {least:,} tokens needs {gigabytes(needed.total)} of memory",
            f"{needed.words}; {gigabytes(free)} are free",
            _remedy(facts, asked, free),
        )
    return MemoryPlan(n_ctx, wanted, free - bill(facts, n_ctx).total)


def largest_context(facts: ModelFacts, wanted: int, least: int, free: int) -> int | None:
    """Halve the wanted context until the model fits in free bytes; None if it never does."""
    fitting = (n_ctx for n_ctx in _halved(wanted, least) if bill(facts, n_ctx).total <= free)
    return next(fitting, None)


def _halved(n_ctx: int, least: int = SMALLEST_CONTEXT) -> Iterator[int]:
    """A context and its halves, down to the smallest."""
    yield n_ctx
    while n_ctx // 2 >= least:
        n_ctx //= 2
        yield n_ctx


def with_sequences(planned: MemoryPlan, facts: ModelFacts, wanted: int) -> tuple[MemoryPlan, int]:
    """A plan that has cells for as many of the wanted whole contexts as half of the room holds.

    With fewer, requests share the cells there are, and wait where that is too few.
    """
    for count in range(wanted if planned.lock_bytes is None else 1, 1, -1):
        more = bill(facts, count * planned.n_ctx).cache - bill(facts, planned.n_ctx).cache
        if planned.room is None:
            return planned, count
        if more <= planned.room // 2:
            return replace(planned, room=planned.room - more), count
    return planned, 1


def open_context(
    model: Model,
    planned: MemoryPlan,
    asked: int | None,
    *,
    drafts: bool = True,
    sequences: int = 1,
) -> tuple[Context, list[str]]:
    """Open a context as planned; returns it with notes on reductions.

    drafts: whether drafts are to be verified in it. sequences: as many contexts' cells it gets.

    A GPU reports a shortage only now; the context is then halved until it fits.

    Raises:
        OutOfMemoryError: not even the smallest context fits.
        UsageError: the context exceeds the model's limit.
    """
    if sequences > 1:
        with suppress(OutOfMemoryError):
            return model.open(planned.n_ctx, drafts=drafts, sequences=sequences), []
    contexts = [planned.n_ctx] if asked else list(_halved(planned.n_ctx))
    for n_ctx in contexts[:-1]:
        with suppress(OutOfMemoryError):
            return model.open(n_ctx, drafts=drafts), _shortened(n_ctx, planned.usual)
    return model.open(contexts[-1], drafts=drafts), _shortened(contexts[-1], planned.usual)


def _shortened(n_ctx: int, usual: int) -> list[str]:
    short = f"memory is short: the context is {n_ctx:,} tokens instead of {usual:,}"
    return [short] if n_ctx < usual else []


def check_new_context(n_ctx: int, info: ModelInfo | None, present: int, layers: int | None) -> None:
    """Refuse a context that is too small, or more than the loaded model was trained for or fits.

    info: None while no model is loaded. present: tokens of its context, whose memory is freed.
    layers: those that were to run on a GPU.

    Raises:
        SpecchatError: the size cannot be used.
    """
    if n_ctx < SMALLEST_CONTEXT:
        what = f"a context of {n_ctx:,} tokens is too small"
        raise UsageError(what, f"it must be at least {SMALLEST_CONTEXT}")
    if info is None:
        return
    check_context(info.name, n_ctx, info.context_limit)
    free = free_memory(info.backend, layers) if n_ctx > present else None
    if free is None:
        return
    try:
        facts = facts_of_target(info.path).with_cache(info.cache_type)
    except SpecchatError:  # its file was damaged meanwhile
        return
    if info.streamed_bytes_per_token:
        freed = info.locked_bytes + bill(facts, present).total - facts.weight_bytes
        stream_plan(info.name, facts, n_ctx, n_ctx, free + freed)
    else:
        plan(info.name, facts, n_ctx, n_ctx, free + bill(facts, present).total)


def drafter_context(
    name: str, facts: ModelFacts, n_ctx: int, room: int | None, *, is_head: bool = False
) -> tuple[int, list[str]]:
    """Choose a drafter's context beside a target's n_ctx; returns it with notes on reductions.

    Past its own context a drafter proposes nothing, and the target continues alone. That of a head
    is as large as its model's; nothing is ever reduced.

    Raises:
        DraftUnavailableError: the drafter does not fit at all.
    """
    wanted = n_ctx if is_head else min(n_ctx, facts.context_limit or n_ctx)
    if room is None:
        return wanted, []
    least = wanted if is_head else min(wanted, SMALLEST_CONTEXT)
    fitting = largest_context(facts, wanted, least, room)
    if fitting is None:
        needed = bill(facts, least)
        raise DraftUnavailableError(
            f"{name} is not used: memory is short",
            f"it needs {gigabytes(needed.total)} ({needed.words}), and {gigabytes(max(room, 0))} "
            "are free beside the model",
        )
    shrunk = f"memory is short: {name} drafts up to {fitting:,} tokens of context, not {wanted:,}"
    return fitting, [shrunk] if fitting < wanted else []


def _remedy(facts: ModelFacts, asked: int | None, free: int) -> str:
    fitting = largest_context(facts, asked, SMALLEST_CONTEXT, free) if asked else None
    if fitting:
        return f"Use --ctx {fitting} or less."
    return "Choose a smaller model or quantization, or free some memory."


_RESERVED_SHARE = 1 / 8
_LEAST_SHARE, _LEAST_RESERVED = 1 / 5, 160_000_000
"""Left free for pages on their way from the disk, for the libraries' own, and for other programs:
an eighth, but at least the smaller of a fifth and 160 MB. 1,194 MB of weights in a memory group of
900 MB, with a drafter of 92 MB: a pass over 20 tokens took 1.0 s with 104 MB left free, 0.74 with
158, 0.73 with 208, 0.76 with 266; without a drafter a token took 0.41 and 0.39 s with 104 and 160
MB."""

_CACHE_SHARE = 1 / 8
"""Of free memory, for context and working memory unless the user asks for a context: what they take
is read from disk in every pass."""


def stream_plan(
    name: str, facts: ModelFacts, asked: int | None, usual: int, free: int
) -> MemoryPlan:
    """Plan a model that streams, without a drafter: all but context and reserve holds weights.

    free: bytes of memory.

    Raises:
        OutOfMemoryError: context and working memory alone do not fit.
    """
    wanted = asked or min(facts.context_limit or usual, usual)
    n_ctx = wanted
    if not asked:  # halved until it leaves enough memory for weights
        for n_ctx in _halved(wanted):
            if _beside_weights(facts, n_ctx).total <= _CACHE_SHARE * free:
                break
    needed = _beside_weights(facts, n_ctx)
    left = free - reserve(free) - needed.total
    if left < 0:
        raise OutOfMemoryError(
            f"{name} cannot even stream from disk with a context of {n_ctx:,} tokens",
            f"that takes {gigabytes(needed.total)} of memory beside the weights "
            f"({needed.words}); {gigabytes(free)} are free, of which "
            f"{gigabytes(reserve(free))} are left alone",
            "Free some memory, or choose a smaller model or quantization.",
        )
    return MemoryPlan(n_ctx, wanted, 0, lock_bytes=left)


def with_drafter(planned: MemoryPlan, drafter_bytes: int) -> MemoryPlan:
    assert planned.lock_bytes is not None
    taken = min(drafter_bytes, planned.lock_bytes)
    return replace(planned, room=taken, lock_bytes=planned.lock_bytes - taken)


def can_stream(facts: ModelFacts, free: int) -> bool:
    least = min(facts.context_limit or SMALLEST_CONTEXT, SMALLEST_CONTEXT)
    return _beside_weights(facts, least).total <= free - reserve(free)


def reserve(free: int) -> int:
    return max(round(_RESERVED_SHARE * free), min(round(_LEAST_SHARE * free), _LEAST_RESERVED))


def _beside_weights(facts: ModelFacts, n_ctx: int) -> MemoryBill:
    return bill(replace(facts, weight_bytes=0, most_tokens=STREAMED_CHUNK), n_ctx)


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
        if self.gpu_layers is not None:
            return split_at(self.layout, self.facts, n_ctx, self.gpu_layers)
        return fullest_split(self.layout, self.facts, n_ctx, self.gpus, reserved)

    @property
    def _wanted(self) -> int:
        return self.asked or min(self.facts.context_limit or self.usual, self.usual)

    @property
    def _contexts(self) -> Sequence[int]:
        return [self._wanted] if self.asked else list(_halved(self._wanted))

    def _beside(self, split: GpuSplit, n_ctx: int) -> MemoryBill:
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
