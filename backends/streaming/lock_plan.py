"""Choosing the weights to hold in memory while the others are read from disk in every pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from mmap import PAGESIZE

from backends.base.distinct_experts import distinct_share
from backends.streaming.weight_layout import Extent, PlacedTensor, Role, WeightLayout


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

    @property
    def read_bytes_per_token(self) -> int:
        """Bytes read from disk in a pass over one token, if nothing but the locked stays."""
        return self.read_bytes(1)

    def read_bytes(self, n_tokens: int) -> int:
        """Bytes read from disk in a pass, of experts in the expectation (see distinct_share)."""
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
        size = _in_pages(tensor.extent)
        if size <= left:
            held.append(tensor)
            left -= size
    names = {tensor.name for tensor in held}
    streamed = [one for one in layout.tensors if one.name not in names and one.role != Role.ROWS]
    streamed.sort(key=lambda one: (_layer_in_pass(one, layout), one.extent.file, one.extent.offset))
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


def _layer_in_pass(tensor: PlacedTensor, layout: WeightLayout) -> int:
    """Layer before which a tensor is needed; the head comes after all."""
    return layout.n_layers if tensor.layer is None else tensor.layer


def _bytes(tensors: Iterable[PlacedTensor]) -> int:
    return sum(tensor.extent.size for tensor in tensors)


def _in_pages(extent: Extent) -> int:
    """Bytes of the pages that an extent touches."""
    first, last = extent.offset // PAGESIZE, -(-extent.end // PAGESIZE)
    return (last - first) * PAGESIZE
