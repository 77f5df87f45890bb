"""Attention and feed-forward parts of a head's layers."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.activations import swiglu
from mlx_lm.models.rope_utils import initialize_rope

from backends.files.head_folders.attention_shape import AttentionShape
from backends.files.head_folders.rotary import Rotary

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
        """Keys and values of tokens from a position on."""
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
    """A gated feed-forward part; rows are (tokens, width)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def __call__(self, rows: mx.array) -> mx.array:
        return self.down_proj(swiglu(self.gate_proj(rows), self.up_proj(rows)))
