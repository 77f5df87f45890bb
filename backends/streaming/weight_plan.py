"""Which of a GGUF model's weights go to a GPU, are held in memory, or stream from disk."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from mmap import PAGESIZE
from pathlib import Path

from backends.base.model import distinct_share
from backends.files.gguf_header import Tensor, parts, read_header

_LAYER = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"_exps\b")
_LOOKED_UP = ("token_embd.weight", "per_layer_token_embd.weight")
"""Tables of which a pass reads single rows."""


class Role(StrEnum):
    """What a pass reads of a tensor."""

    SHARED = "shared"
    """All of it, in every pass."""
    EXPERTS = "experts"
    """The experts that its tokens choose."""
    ROWS = "rows"
    """One row for each token."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of bytes in one of a model's files."""

    file: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor's place in the files and in a pass."""

    name: str
    extent: Extent
    role: Role
    layer: int | None
    """None outside the layers: embedding, head and norms."""


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """Tensors of a model in the order of its files."""

    files: tuple[Path, ...]
    tensors: tuple[PlacedTensor, ...]
    n_layers: int
    expert_share: float = 1.0
    """Share of the routed experts that one token uses."""
    n_experts: int = 0
    """Routed experts of a layer."""

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.extent.size for tensor in self.tensors)

    def read_bytes(self, n_tokens: int = 1) -> int:
        """Bytes that a pass reads, of routed experts in the expectation (see distinct_share)."""
        return sum(
            round(tensor.extent.size * self.share(tensor.role, n_tokens)) for tensor in self.tensors
        )

    def share(self, role: Role, n_tokens: int = 1) -> float:
        """Share of a tensor that a pass reads; rows count as nothing."""
        experts = distinct_share(self.expert_share, n_tokens)
        return {Role.SHARED: 1.0, Role.EXPERTS: experts, Role.ROWS: 0.0}[role]


def weight_layout(path: Path) -> WeightLayout:
    """Read the layout of a model from the headers of its files.

    path: its first file.
    """
    files = tuple(parts(path))
    headers = [read_header(file) for file in files]
    first = headers[0]
    is_tied = not any(one.name == "output.weight" for header in headers for one in header.tensors)
    placed = tuple(
        _placed(file, tensor, is_tied=is_tied)
        for file, header in enumerate(headers)
        for tensor in header.tensors
    )
    n_layers, experts = first.integer("block_count"), first.integer("expert_count")
    return WeightLayout(files, placed, n_layers, first.expert_share, experts)


def _placed(file: int, tensor: Tensor, *, is_tied: bool) -> PlacedTensor:
    layer = _LAYER.match(tensor.name)
    role = Role.SHARED
    if _EXPERTS.search(tensor.name):
        role = Role.EXPERTS
    elif tensor.name in _LOOKED_UP[is_tied:]:
        role = Role.ROWS
    extent = Extent(file, tensor.offset, tensor.stored_bytes)
    return PlacedTensor(tensor.name, extent, role, int(layer[1]) if layer else None)


@dataclass(frozen=True, slots=True)
class LockPlan:
    """Weights to hold in memory, in order of importance, and weights that stream."""

    locked: tuple[Extent, ...]
    streamed: tuple[PlacedTensor, ...]
    """What stays on disk, in the order of a pass."""
    locked_bytes: int
    shared_bytes: int
    """Bytes on disk that every pass reads."""
    expert_bytes: int = 0
    """Bytes on disk of routed experts, of which a pass reads those that its tokens choose."""
    expert_share: float = 1.0
    """Share of the routed experts that one token uses."""

    def read_bytes(self, n_tokens: int = 1) -> int:
        """Bytes read from disk in a pass, of experts in the expectation (see distinct_share).

        If nothing but the locked stays in memory.
        """
        experts = self.expert_bytes * distinct_share(self.expert_share, n_tokens)
        return self.shared_bytes + round(experts)


def lock_plan(layout: WeightLayout, budget_bytes: int) -> LockPlan:
    """Choose what to hold within a budget so that a pass reads the fewest bytes from disk.

    What every pass reads whole comes first: the head and norms, then tensors of layers, spread
    evenly over the layers so that the disk reads while held ones are computed. Routed experts
    follow, of which a token reads a share, in whole tensors: which of their experts are chosen
    most is not known. Rows of an embedding are never held. A cache of the least recently used pages
    would keep nothing: a pass reads the file round and round.
    """
    held: list[PlacedTensor] = []
    left = budget_bytes
    for tensor in _by_importance(layout):
        extent = tensor.extent
        size = (-(-extent.end // PAGESIZE) - extent.offset // PAGESIZE) * PAGESIZE  # whole pages
        if size <= left:
            held.append(tensor)
            left -= size
    names = {tensor.name for tensor in held}
    streamed = [one for one in layout.tensors if one.name not in names and one.role != Role.ROWS]
    end = layout.n_layers  # the head comes after all layers
    streamed.sort(
        key=lambda one: (
            end if one.layer is None else one.layer, one.extent.file, one.extent.offset
        )
    )  # fmt: skip
    return LockPlan(
        tuple(tensor.extent for tensor in held),
        tuple(streamed),
        _bytes(held),
        _bytes(one for one in streamed if one.role == Role.SHARED),
        _bytes(one for one in streamed if one.role == Role.EXPERTS),
        layout.expert_share,
    )


def _by_importance(layout: WeightLayout) -> Iterable[PlacedTensor]:
    shared = [one for one in layout.tensors if one.role == Role.SHARED]
    yield from (one for one in shared if one.layer is None)
    yield from _spread([one for one in shared if one.layer is not None], layout.n_layers)
    yield from _spread([one for one in layout.tensors if one.role == Role.EXPERTS], layout.n_layers)


def _spread(tensors: Sequence[PlacedTensor], n_layers: int) -> list[PlacedTensor]:
    """Order tensors so that every beginning of the order is spread evenly over the layers."""
    rank = {layer: index for index, layer in enumerate(_evenly(n_layers))}
    return sorted(tensors, key=lambda one: (rank.get(one.layer or 0, n_layers), one.extent.offset))


def _evenly(count: int) -> list[int]:
    """Numbers below count, each far from those before it (van der Corput's sequence)."""
    bits = max(count - 1, 1).bit_length()
    reversed_bits = (int(f"{index:0{bits}b}"[::-1], 2) for index in range(1 << bits))
    return [index for index in reversed_bits if index < count]


def _bytes(tensors: Iterable[PlacedTensor]) -> int:
    return sum(tensor.extent.size for tensor in tensors)


# What of a model's weights goes to GPUs and what stays with the processor.
# As llama.cpp divides them (load_tensors in src/llama-model.cpp, n_gpu_layers): the output head
# with its norms goes first, then the last layers, and the input embedding always stays. An
# embedding that is the head too is copied to the GPU.

_INPUT = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")
"""How the names of tensors before the first layer begin."""


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes of a layer or of the output head: stored, and read by a pass over one token."""

    stored: int
    read: int


def layer_bytes(layout: WeightLayout) -> tuple[LayerBytes, ...]:
    """Bytes of each layer, and of the output head as the last."""
    layers = range(layout.n_layers + 1)
    stored, read = [0 for _ in layers], [0 for _ in layers]
    for tensor in layout.tensors:
        at = _layer(tensor, layout.n_layers)
        if at is not None:
            stored[at] += tensor.extent.size
            read[at] += round(tensor.extent.size * layout.share(tensor.role))
    return tuple(LayerBytes(*each) for each in zip(stored, read, strict=True))


def on_gpu(layout: WeightLayout, gpu_layers: int) -> tuple[PlacedTensor, ...]:
    """Tensors that only GPUs use. gpu_layers: as the engine counts them, the head as the first."""
    first = _first(layout, gpu_layers)
    return tuple(
        one
        for one in layout.tensors
        if not _is_input(one) and (at := _layer(one, layout.n_layers)) is not None and at >= first
    )


def beside_gpu(layout: WeightLayout, gpu_layers: int) -> WeightLayout:
    """The layout of what stays with the processor: the first layers, and the input embedding.

    gpu_layers: as the engine counts them, the head as the first.
    """
    if not gpu_layers:
        return layout
    gone = {one.name for one in on_gpu(layout, gpu_layers)}
    tensors = tuple(
        replace(one, role=Role.ROWS) if _is_input(one) else one
        for one in layout.tensors
        if one.name not in gone
    )
    n_layers = min(_first(layout, gpu_layers), layout.n_layers)
    return replace(layout, tensors=tensors, n_layers=n_layers)


def _first(layout: WeightLayout, gpu_layers: int) -> int:
    """First layer on a GPU; n_layers stands for the head, and one more for none."""
    return max(layout.n_layers + 1 - gpu_layers, 0)


def _layer(tensor: PlacedTensor, n_layers: int) -> int | None:
    """Layer of a tensor, n_layers for one of the head; None for one that is only looked up."""
    if tensor.layer is not None:
        return min(tensor.layer, max(n_layers - 1, 0))
    is_looked_up = _is_input(tensor) and tensor.role is not Role.SHARED
    return None if is_looked_up else n_layers


def _is_input(tensor: PlacedTensor) -> bool:
    return tensor.layer is None and tensor.name.startswith(_INPUT)


STREAMED_CHUNK = 512
"""Most tokens of a prefill pass that reads all streamed weights once, and can be stopped inside.

Its buffers take 14 MB more than those for 256 tokens (1.1B body)."""

_FEWEST = 64
_WORK = 19_000_000_000
"""Tokens times bytes of the largest matrix, between two moments at which a pass can be stopped: on
two cores 40 tokens times 240 MB took about 0.3 s. A matrix that makes chunks shorter computes for
longer than it is read from disk."""


def streamed_chunk(largest_bytes: int) -> int:
    """Tokens of a prefill pass, by what a token uses of the largest matrix."""
    tokens = STREAMED_CHUNK
    while tokens > _FEWEST and tokens * largest_bytes > _WORK:
        tokens //= 2
    return tokens
