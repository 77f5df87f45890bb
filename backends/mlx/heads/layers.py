"""Layers that several kinds of heads have, or borrow from their model."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models.activations import swiglu
from mlx_lm.models.rope_utils import initialize_rope

from backends.base import DraftUnavailableError
from backends.files.head_folders.shapes import AttentionShape, Rotary
from backends.mlx.model import weights_of

Apply = Callable[[mx.array], mx.array]
"""A method and no module: as an attribute of a head's, a module would count as its own."""

_EMBEDDING, _OUTPUT = "embed_tokens", "lm_head"


def embedding_of(model: nn.Module) -> Apply:
    """A model's embedding of tokens as it is stored, (n,) to (n, width): some models scale it."""
    embedding = _named(model, _EMBEDDING)
    if embedding is None:
        raise DraftUnavailableError(
            "a head cannot read this model", f"{type(model).__module__} has no {_EMBEDDING}"
        )
    return embedding.__call__


def output_of(model: nn.Module) -> Apply:
    """A model's output layer, (n, width) to (n, n_vocab): its embedding if it has no other."""
    output = _named(model, _OUTPUT)
    if output is not None:
        return output.__call__
    embedding_of(model)
    return _named(model, _EMBEDDING).as_linear


def output_bytes(model: nn.Module) -> int:
    """Size of the output layer that a head borrows, which it reads for each token or block."""
    output = _named(model, _OUTPUT)
    layer = _named(model, _EMBEDDING) if output is None else output
    return sum(array.nbytes for _, array in weights_of(layer))


def _named(model: nn.Module, name: str) -> Any:
    """The part of a model of this name, None if there is not exactly one."""
    parts = cast("list[tuple[str, Any]]", model.named_modules())
    found = [part for path, part in parts if path.rpartition(".")[2] == name]
    return found[0] if len(found) == 1 else None


Entries = tuple[mx.array, mx.array]
"""Keys and values of tokens, each of shape (1, kv_heads, tokens, head_size)."""


class HeadAttention(nn.Module):
    """Attention with keys and values made apart from its queries; rows are (tokens, inputs)."""

    def __init__(self, shape: AttentionShape, rotary: Rotary, width: int, epsilon: float) -> None:
        """width: of the rows it gives. epsilon: of the norms of each head's queries and keys."""
        super().__init__()
        self._shape = shape
        inputs, biased = shape.inputs, shape.biased
        queries, entries = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.q_proj = nn.Linear(inputs, queries, bias="q_proj" in biased)
        self.k_proj = nn.Linear(inputs, entries, bias="k_proj" in biased)
        self.v_proj = nn.Linear(inputs, entries, bias="v_proj" in biased)
        self.o_proj = nn.Linear(queries, width, bias="o_proj" in biased)
        if shape.has_norms:
            self.q_norm = nn.RMSNorm(shape.head_size, eps=epsilon)
            self.k_norm = nn.RMSNorm(shape.head_size, eps=epsilon)
        if shape.has_sinks:
            self.sinks = mx.zeros((shape.heads,))
        self._rotate = _rotation(rotary)

    def queries(self, rows: mx.array, position: int) -> mx.array:
        """Queries of tokens from a position on, shape (1, heads, tokens, head_size)."""
        queries = self._by_head(self.q_proj(rows), self._shape.heads)
        if self._shape.has_norms:
            queries = self.q_norm(queries)
        return self._rotate(queries, offset=position)

    def entries(self, rows: mx.array, position: int) -> Entries:
        keys = self._by_head(self.k_proj(rows), self._shape.kv_heads)
        if self._shape.has_norms:
            keys = self.k_norm(keys)
        values = self._by_head(self.v_proj(rows), self._shape.kv_heads)
        return self._rotate(keys, offset=position), values

    def attend(self, queries: mx.array, entries: Entries, mask: mx.array | str | None) -> mx.array:
        """What queries find in entries, shape (tokens, width)."""
        found = mx.fast.scaled_dot_product_attention(
            queries,
            *entries,
            scale=self._shape.head_size**-0.5,
            mask=mask,
            sinks=self.sinks.astype(queries.dtype) if self._shape.has_sinks else None,
        )
        return self.o_proj(found[0].swapaxes(0, 1).reshape(queries.shape[2], -1))

    def _by_head(self, rows: mx.array, heads: int) -> mx.array:
        return rows.reshape(1, len(rows), heads, self._shape.head_size).swapaxes(1, 2)


def _rotation(rotary: Rotary) -> Any:
    return initialize_rope(
        rotary.size,
        rotary.base,
        rotary.is_interleaved,
        None if rotary.scaling is None else dict(rotary.scaling),
    )


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def __call__(self, rows: mx.array) -> mx.array:
        return self.down_proj(swiglu(self.gate_proj(rows), self.up_proj(rows)))
