"""A layer of a llama as a graph that learns, as llama.cpp computes llama, qwen2, qwen3 and qwen35.

Weights are named as in GGUF files, matrices are (out, in). Shapes: B texts, T places, d numbers of
a state.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays, Weights

Positions = list[tuple[Array, Array]]
"""Keys and values of the positions run so far, (B, heads, T, size) each."""

LORA_IN, LORA_OUT = ".lora_a", ".lora_b"


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Of a layer. rotated: numbers of a head that are, by base; in_pairs: neighbours together.

    epsilon: of the norms.
    """

    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    base: float
    epsilon: float
    rotated: int = 0
    in_pairs: bool = False

    def weights(self, inputs: int = 1) -> dict[str, tuple[int, ...]]:
        """Shapes of a plain layer's, attention of which reads inputs states side by side."""
        width, inner = self.width, self.feed_forward
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "attn_norm": (width,),
            "attn_q": (queries, inputs * width),
            "attn_k": (keys, inputs * width),
            "attn_v": (keys, inputs * width),
            "attn_output": (width, queries),
            "ffn_norm": (width,),
            "ffn_gate": (inner, width),
            "ffn_up": (inner, width),
            "ffn_down": (width, inner),
        }


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers over weights; some matrices have biases, or a change of low rank (LoRA).

    factors: that the rates of rotation are divided by.
    """

    arrays: Arrays
    shape: LayerShape
    weights: Weights
    factors: NDArray[np.float32] | None = None

    def linear(self, x: Array, name: str) -> Array:
        product, weights = self.arrays.product, self.weights
        result = product(x, weights[f"{name}.weight"])
        if f"{name}{LORA_IN}" in weights:
            inner = product(x, weights[f"{name}{LORA_IN}"])
            result = result + product(inner, weights[f"{name}{LORA_OUT}"])
        bias = weights.get(f"{name}.bias")
        return result if bias is None else result + bias

    def norm(self, x: Array, name: str) -> Array:
        scale = ((x * x).mean(-1)[..., None] + self.shape.epsilon) ** -0.5
        return x * scale * self.weights[f"{name}.weight"]

    def run(self, block: str, inputs: Array, state: Array, run: Positions) -> Array:
        """The states after (B, T, d), of those that it adds to and what its attention reads.

        run: keys and values of the positions before, which its own are added to. Place i of
        position k stands at i + k: it sees places up to i of the first position, which are the
        text, and place i of the others, its draft.
        """
        size, position = self.shape.head_size, len(run)
        keys = self._split(inputs, f"{block}attn_k", self.shape.kv_heads)
        values = self._split(inputs, f"{block}attn_v", self.shape.kv_heads)
        queries = self._split(inputs, f"{block}attn_q", self.shape.heads)
        run.append((self._rotated(keys, f"{block}attn_k", position), values))
        found = self._attended(self._rotated(queries[..., :size], f"{block}attn_q", position), run)
        if queries.shape[-1] > size:  # with gates, as Qwen 3.5 has
            found = found / (1.0 + (-queries[..., size:]).exp())
        found = found.swapaxes(1, 2).reshape(*state.shape[:2], -1)
        state = state + self.linear(found, f"{block}attn_output")
        name = f"{block}ffn_norm"
        if f"{name}.weight" not in self.weights:
            name = f"{block}post_attention_norm"
        return state + self.feed_forward(self.norm(state, name), block)

    def feed_forward(self, x: Array, block: str) -> Array:
        gate = self.arrays.silu(self.linear(x, f"{block}ffn_gate"))
        return self.linear(gate * self.linear(x, f"{block}ffn_up"), f"{block}ffn_down")

    def _attended(self, queries: Array, run: Positions) -> Array:
        """Of (B, heads, T, size)."""
        ops, kv_heads, size = self.arrays.ops, self.shape.kv_heads, self.shape.head_size
        groups, length = self.shape.heads // kv_heads, queries.shape[2]
        asked = queries.reshape(-1, kv_heads, groups, length, size) * size**-0.5
        flat = asked.reshape(-1, kv_heads, groups * length, size)
        (keys, values), *drafted = run
        hidden = np.tile(np.triu(np.full((length, length), -1e9, np.float32), 1), (groups, 1))
        seen = [flat @ keys.swapaxes(-1, -2) + self.arrays.array(hidden)]
        for own, _ in drafted:
            score = (asked * own[:, :, None]).sum(-1)
            seen.append(score.reshape(-1, kv_heads, groups * length, 1))
        shares = ops.softmax(ops.concatenate(seen, -1), -1)
        found = (shares[..., :length] @ values).reshape(asked.shape)
        for number, (_, own) in enumerate(drafted, length):
            share = shares[..., number : number + 1].reshape(*asked.shape[:-1], 1)
            found = found + share * own[:, :, None]
        return found.reshape(queries.shape)

    def _split(self, x: Array, name: str, heads: int) -> Array:
        """(B, T, inputs) to (B, heads, T, outputs / heads)."""
        return self.linear(x, name).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    def _rotated(self, x: Array, name: str, start: int) -> Array:
        """(B, heads, T, size) at positions from start on; normed before, if each head is."""
        if f"{name}_norm.weight" in self.weights:
            x = self.norm(x, f"{name}_norm")
        rotated = self.shape.rotated or x.shape[-1]
        half = rotated // 2
        rates = self.shape.base ** (-np.arange(half, dtype=np.float64) / half)
        places = np.arange(start, start + x.shape[-2], dtype=np.float64)
        angles = places[:, np.newaxis] * (rates if self.factors is None else rates / self.factors)
        cosine, sine = (
            self.arrays.array(turn(angles.astype(np.float32))) for turn in (np.cos, np.sin)
        )
        turning = x[..., :rotated]
        if self.shape.in_pairs:  # the order of numbers is the same in queries and keys
            turning = turning.reshape(*turning.shape[:-1], half, 2).swapaxes(-1, -2)
            turning = turning.reshape(*x.shape[:-1], rotated)
        one, other = turning[..., :half], turning[..., half:]
        turned = [one * cosine - other * sine, other * cosine + one * sine, x[..., rotated:]]
        return self.arrays.ops.concatenate(turned, -1)
