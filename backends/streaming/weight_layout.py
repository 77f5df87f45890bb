"""Where the weights of a GGUF model lie in its files, and which of them a pass reads."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from backends.base.distinct_experts import distinct_share
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
        """First byte after it."""
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
        """Bytes of all tensors."""
        return sum(tensor.extent.size for tensor in self.tensors)

    @property
    def bytes_per_token(self) -> int:
        """Bytes that a pass over one token reads."""
        return self.read_bytes(1)

    def read_bytes(self, n_tokens: int) -> int:
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

    Raises:
        ModelError: a file is missing or damaged.
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
