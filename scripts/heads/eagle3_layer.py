"""The layer of an EAGLE-3 head in numpy, forward and backward, as llama.cpp computes it.

Li et al. 2025 (arXiv 2503.01840), section 3; src/models/eagle3.cpp of llama.cpp. Shapes: B texts, T
positions, H heads of D numbers over K cached ones, width E.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Weights = dict[str, Array]
"""By the names of llama.cpp, without block and suffix; matrices as (out, in)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the weights do not tell. base: of the rotary frequencies; epsilon: of the norms."""

    heads: int
    kv_heads: int
    base: float
    epsilon: float


class Cache(NamedTuple):
    """Keys and values of the texts, shape (B, K, T, D)."""

    keys: Array
    values: Array


class Norm(NamedTuple):
    """What the way back through an RMS norm needs."""

    weight: Array
    normed: Array
    scale: Array


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over texts, with all that the way back needs; state: (B, T, E), before the norm."""

    state: Array
    output: Array
    cache: Cache
    earlier: Cache
    shares: Array
    own_share: Array
    queries: Array
    inputs: Array
    attended: Array
    gate: Array
    up: Array
    norms: dict[str, Norm]
    is_first: bool


def norm(x: Array, weight: Array, epsilon: float) -> tuple[Array, Norm]:
    """RMS norm, and what its way back needs."""
    scale = 1.0 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(epsilon))
    normed = x * scale
    return normed * weight, Norm(weight, normed, scale)


def norm_back(gradient: Array, of: Norm) -> tuple[Array, Array]:
    """Gradients of the input and of the weight."""
    inner = gradient * of.weight
    back = of.scale * (inner - of.normed * (inner * of.normed).mean(-1, keepdims=True))
    return back, (gradient * of.normed).reshape(-1, len(of.weight)).sum(0)


def rotated(x: Array, base: float, *, back: bool = False) -> Array:
    """Rotary positions over neighbouring pairs, shape (B, heads, T, D)."""
    half = x.shape[-1] // 2
    rates = np.power(base, -np.arange(half, dtype=np.float64) / half)
    angles = np.outer(np.arange(x.shape[-2], dtype=np.float64), rates)
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    even, odd = x[..., 0::2], x[..., 1::2]
    if back:
        sine = -sine
    turned = np.empty_like(x)
    turned[..., 0::2] = even * cosine - odd * sine
    turned[..., 1::2] = even * sine + odd * cosine
    return turned


def forward(
    weights: Weights, shape: Shape, embedded: Array, fused: Array, earlier: Cache | None = None
) -> Pass:
    """Run texts: embeddings of each next token, and the state before it, (B, T, E) each.

    earlier: keys and values of the positions before, None for the pass's own. They are those of
    true states in a pass over drafted ones, which sees itself at its own position alone.
    """
    norms: dict[str, Norm] = {}

    def normed(x: Array, name: str) -> Array:
        result, norms[name] = norm(x, weights[name], shape.epsilon)
        return result

    inputs = np.concatenate([normed(embedded, "attn_norm"), normed(fused, "attn_norm_2")], axis=-1)
    queries = rotated(_split(inputs @ weights["attn_q"].T, shape.heads), shape.base)
    keys = rotated(_split(inputs @ weights["attn_k"].T, shape.kv_heads), shape.base)
    own = Cache(keys, _split(inputs @ weights["attn_v"].T, shape.kv_heads))
    before = earlier or own
    grouped = _grouped(queries, shape)
    scale = np.float32(queries.shape[-1] ** -0.5)
    scores = grouped @ before.keys[:, :, None].swapaxes(-1, -2) * scale
    length = fused.shape[1]
    scores[..., ~np.tri(length, k=-1, dtype=bool)] = -np.inf
    alone = (grouped * own.keys[:, :, None]).sum(-1) * scale
    most = np.maximum(scores.max(-1), alone)
    shares, own_share = np.exp(scores - most[..., None]), np.exp(alone - most)
    total = shares.sum(-1) + own_share
    shares, own_share = shares / total[..., None], own_share / total
    heads = shares @ before.values[:, :, None] + own_share[..., None] * own.values[:, :, None]
    attended = _merged(heads)
    middle = fused + attended @ weights["attn_output"].T
    between = normed(middle, "ffn_norm")
    gate, up = between @ weights["ffn_gate"].T, between @ weights["ffn_up"].T
    state = middle + (_silu(gate) * up) @ weights["ffn_down"].T
    return Pass(
        state,
        normed(state, "output_norm"),
        own,
        before,
        shares,
        own_share,
        queries,
        inputs,
        attended,
        gate,
        up,
        norms,
        earlier is None,
    )


def backward(
    weights: Weights, shape: Shape, of: Pass, gradient: Array, of_state: Array | None = None
) -> tuple[Weights, Array]:
    """Gradients of the weights, and of the state before each token, from those of the output.

    Cached keys and values of another pass count as given. of_state: gradient of the pass's own
    state by what a later pass makes of it.
    """
    found: Weights = {}
    norms = of.norms

    def back(of_output: Array, name: str, inputs: Array) -> Array:
        found[name] = _flat(of_output).T @ _flat(inputs)
        return of_output @ weights[name]

    state, found["output_norm"] = norm_back(gradient, norms["output_norm"])
    if of_state is not None:
        state = state + of_state
    sigmoid = 1.0 / (1.0 + np.exp(-of.gate))
    silu = of.gate * sigmoid
    product = back(state, "ffn_down", silu * of.up)
    gate = product * of.up * (sigmoid + silu * (1.0 - sigmoid))
    between = norms["ffn_norm"].normed * norms["ffn_norm"].weight
    through = back(gate, "ffn_gate", between) + back(product * silu, "ffn_up", between)
    middle, found["ffn_norm"] = norm_back(through, norms["ffn_norm"])
    middle = middle + state
    heads = _grouped(_split(back(middle, "attn_output", of.attended), shape.heads), shape)
    queries, keys, values = _attention_back(shape, of, heads)
    inputs = back(_merged_heads(rotated(queries, shape.base, back=True)), "attn_q", of.inputs)
    inputs += back(_merged_heads(rotated(keys, shape.base, back=True)), "attn_k", of.inputs)
    inputs += back(_merged_heads(values), "attn_v", of.inputs)
    width = middle.shape[-1]
    _, found["attn_norm"] = norm_back(inputs[..., :width], norms["attn_norm"])
    fused, found["attn_norm_2"] = norm_back(inputs[..., width:], norms["attn_norm_2"])
    return found, fused + middle


def _attention_back(shape: Shape, of: Pass, heads: Array) -> tuple[Array, Array, Array]:
    """Gradients of queries, keys and values, before rotary positions are taken back."""
    own, before = of.cache, of.earlier
    queries = _grouped(of.queries, shape)
    scale = np.float32(queries.shape[-1] ** -0.5)
    shares = heads @ before.values[:, :, None].swapaxes(-1, -2)
    alone = (heads * own.values[:, :, None]).sum(-1)
    mean = (shares * of.shares).sum(-1) + alone * of.own_share
    scores = of.shares * (shares - mean[..., None]) * scale
    score = (of.own_share * (alone - mean) * scale)[..., None]
    of_queries = scores @ before.keys[:, :, None] + score * own.keys[:, :, None]
    keys = (score * queries).sum(2)
    values = (of.own_share[..., None] * heads).sum(2)
    if of.is_first:
        keys = keys + (scores.swapaxes(-1, -2) @ queries).sum(2)
        values = values + (of.shares.swapaxes(-1, -2) @ heads).sum(2)
    return of_queries.reshape(of.queries.shape), keys, values


def guessed_states(of: Pass) -> Array:
    """The state before each token if the one before that was drafted: the head's own."""
    moved = np.zeros_like(of.state)
    moved[:, 1:] = of.state[:, :-1]
    return moved


def guessed_back(gradient: Array) -> Array:
    """Gradient of a pass's state from that of the guessed states."""
    moved = np.zeros_like(gradient)
    moved[:, :-1] = gradient[:, 1:]
    return moved


def _split(x: Array, heads: int) -> Array:
    """(B, T, heads * D) as (B, heads, T, D)."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _merged_heads(x: Array) -> Array:
    """(B, heads, T, D) as (B, T, heads * D)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def _grouped(x: Array, shape: Shape) -> Array:
    """(B, H, T, D) as (B, K, H / K, T, D)."""
    return x.reshape(x.shape[0], shape.kv_heads, -1, *x.shape[2:])


def _merged(x: Array) -> Array:
    """(B, K, H / K, T, D) as (B, T, H * D)."""
    return _merged_heads(x.reshape(x.shape[0], -1, *x.shape[3:]))


def _flat(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _silu(x: Array) -> Array:
    return x / (1.0 + np.exp(-x))
