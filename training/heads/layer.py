"""A layer of a llama over texts, whose drafted positions each see themselves and those before."""

import numpy as np

from training.arrays import Array, Arrays, Weights
from training.source import LayerShape

Earlier = list[tuple[Array, Array]]
"""Keys and values of the positions before, (B, heads, T, size) each."""


def norm(x: Array, weight: Array, epsilon: float) -> Array:
    """RMS norm."""
    return x * ((x * x).mean(-1)[..., None] + epsilon) ** -0.5 * weight


class Layer:
    """Its weights have the names of published folders, their matrices without suffix."""

    def __init__(self, arrays: Arrays, shape: LayerShape) -> None:
        self._arrays, self._shape = arrays, shape

    def begin(self) -> Earlier:
        """Keys and values of the positions run so far: none."""
        return []

    def run(self, weights: Weights, name: str, inputs: Array, state: Array, run: Earlier) -> Array:
        """The states after (B, T, d), of those that it adds to and what its attention reads.

        run: keys and values of the positions before, which its own are added to. Place i of
        position k stands at i + k: it sees places up to i of the first position, which are the
        text, and place i of the others, its draft.
        """
        shape, product = self._shape, self._arrays.product
        length, position = state.shape[1], len(run)

        def part(module: str) -> Array:
            return weights[f"{name}.{module}"]

        keys = self._split(product(inputs, part("self_attn.k_proj")), shape.kv_heads)
        values = self._split(product(inputs, part("self_attn.v_proj")), shape.kv_heads)
        queries = self._split(product(inputs, part("self_attn.q_proj")), shape.heads)
        run.append((self._rotated(keys, position), values))
        attended = self._attended(self._rotated(queries, position), run, length)
        state = state + product(attended, part("self_attn.o_proj"))
        between = norm(state, part("post_attention_layernorm"), shape.epsilon)
        gate = self._arrays.silu(product(between, part("mlp.gate_proj")))
        up = product(between, part("mlp.up_proj"))
        return state + product(gate * up, part("mlp.down_proj"))

    def _attended(self, queries: Array, run: Earlier, length: int) -> Array:
        shape = self._shape
        groups, size = shape.heads // shape.kv_heads, shape.head_size
        asked = queries.reshape(-1, shape.kv_heads, groups, length, size) * size**-0.5
        flat = asked.reshape(-1, shape.kv_heads, groups * length, size)
        (keys, values), *drafted = run
        hidden = np.tile(np.triu(np.full((length, length), -1e9, np.float32), 1), (groups, 1))
        seen = [flat @ keys.swapaxes(-1, -2) + self._arrays.array(hidden)]
        for own, _ in drafted:
            score = (asked * own[:, :, None]).sum(-1)
            seen.append(score.reshape(-1, shape.kv_heads, groups * length, 1))
        shares = self._arrays.softmax(self._arrays.concatenated(seen, -1))
        found = shares[..., :length] @ values
        found = found.reshape(-1, shape.kv_heads, groups, length, size)
        for number, (_, own) in enumerate(drafted, length):
            share = shares[..., number : number + 1]
            found = found + share.reshape(-1, shape.kv_heads, groups, length, 1) * own[:, :, None]
        merged = found.reshape(-1, shape.heads, length, size).swapaxes(1, 2)
        return merged.reshape(-1, length, shape.heads * size)

    def _split(self, x: Array, heads: int) -> Array:
        """(B, T, heads * size) as (B, heads, T, size)."""
        return x.reshape(*x.shape[:2], heads, self._shape.head_size).swapaxes(1, 2)

    def _rotated(self, x: Array, start: int) -> Array:
        """Rotary positions over pairs half a head apart, from start on."""
        half = x.shape[-1] // 2
        rates = self._shape.base ** (-np.arange(half, dtype=np.float64) / half)
        places = np.arange(start, start + x.shape[-2], dtype=np.float64)
        angles = (places[:, np.newaxis] * rates).astype(np.float32)
        cosine, sine = self._arrays.array(np.cos(angles)), self._arrays.array(np.sin(angles))
        one, other = x[..., :half], x[..., half:]
        turned = [one * cosine - other * sine, other * cosine + one * sine]
        return self._arrays.concatenated(turned, -1)
