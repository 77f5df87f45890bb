"""Layers of a llama as a graph that can learn, as llama.cpp computes llama, qwen2 and qwen3.

Weights are named and laid out as in GGUF files: matrices (out, in), rotary pairs side by side in a
llama, in halves else. Shapes: B texts, T positions, H heads of D numbers over K cached ones.
"""

from dataclasses import dataclass
from typing import Any, cast

import gguf
import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays, Weights

Stored = dict[str, NDArray[np.float32]]

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """What weights do not tell. rotated: numbers of a head; in_halves: how they are paired."""

    layers: int
    heads: int
    kv_heads: int
    rotated: int
    base: float
    epsilon: float
    in_halves: bool


def read_shape(reader: gguf.GGUFReader) -> LlamaShape:
    architecture = cast("str", reader.fields["general.architecture"].contents())

    def number(key: str, usual: float = 0.0) -> float:
        field = reader.get_field(f"{architecture}.{key}")
        return usual if field is None else float(cast("float", field.contents()))

    heads = int(number("attention.head_count"))
    size = int(number("attention.key_length", number("embedding_length") // max(heads, 1)))
    return LlamaShape(
        int(number("block_count")),
        heads,
        int(number("attention.head_count_kv", heads)),
        int(number("rope.dimension_count", size)),
        number("rope.freq_base", 10_000.0),
        number("attention.layer_norm_rms_epsilon"),
        architecture != "llama",
    )


def read_weights(reader: gguf.GGUFReader) -> Stored:
    """All floats of a file, dequantized."""
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in reader.tensors
    }


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of T positions, (T, R / 2)."""

    cosine: Array
    sine: Array
    in_halves: bool

    @classmethod
    def of(
        cls, arrays: Arrays, shape: LlamaShape, length: int, factors: NDArray[Any] | None = None
    ) -> "Rotation":
        half = shape.rotated // 2
        rates = np.power(shape.base, -np.arange(half, dtype=np.float64) / half)
        angles = np.outer(np.arange(length), rates if factors is None else rates / factors)
        cosine, sine = (arrays.array(one(angles).astype(np.float32)) for one in (np.cos, np.sin))
        return cls(cosine, sine, shape.in_halves)

    def turned(self, arrays: Arrays, x: Array) -> Array:
        """Rotate (B, heads, T, D), whose numbers after the first R stay."""
        half = self.cosine.shape[-1]
        rest = x[..., 2 * half :]
        if self.in_halves:
            first, second = x[..., :half], x[..., half : 2 * half]
        else:
            first, second = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
        turned = (
            first * self.cosine - second * self.sine,
            first * self.sine + second * self.cosine,
        )
        if self.in_halves:
            return arrays.concatenated([*turned, rest], -1)
        pairs = arrays.concatenated([one[..., None] for one in turned], -1)
        pairs = pairs.reshape(*x.shape[:-1], 2 * half)
        return arrays.concatenated([pairs, rest], -1)


Entries = tuple[Array, Array]
"""Keys and values of texts, (B, K, T, D) each."""

LORA_IN, LORA_OUT = ".lora_a", ".lora_b"


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers over weights by name; some matrices have biases, or a change of low rank (LoRA)."""

    arrays: Arrays
    shape: LlamaShape
    weights: Weights
    rotation: Rotation

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

    def block(self, x: Array, block: str, mask: Array) -> Array:
        """A layer of a llama over (B, T, width)."""
        x = x + self.attention(self.norm(x, f"{block}attn_norm"), block, mask)[0]
        return x + self.feed_forward(self.norm(x, f"{block}ffn_norm"), block)

    def feed_forward(self, x: Array, block: str) -> Array:
        gate, up = self.linear(x, f"{block}ffn_gate"), self.linear(x, f"{block}ffn_up")
        return self.linear(self.arrays.silu(gate) * up, f"{block}ffn_down")

    def attention(
        self, x: Array, block: str, mask: Array, earlier: Entries | None = None
    ) -> tuple[Array, Entries]:
        """Attention of normed texts, (B, T, width), and what they leave.

        mask: added to scores, (T, T). earlier: of the positions before, None for the pass's own; a
        pass over drafted tokens sees true ones, and itself at its own position. Queries of twice
        the size of keys come with gates (Qwen3.5).
        """
        arrays, shape = self.arrays, self.shape
        size = self.weights[f"{block}attn_k.weight"].shape[0] // shape.kv_heads
        wide = self._by_head(x, f"{block}attn_q", shape.heads)
        asked, gates = self._placed(wide[..., :size], f"{block}attn_q"), wide[..., size:]
        keys = self._placed(self._by_head(x, f"{block}attn_k", shape.kv_heads), f"{block}attn_k")
        values = self._by_head(x, f"{block}attn_v", shape.kv_heads)
        texts, length = x.shape[0], x.shape[1]
        asked = asked.reshape(texts, shape.kv_heads, -1, length, size) * size**-0.5
        seen, said = earlier or (keys, values)
        scores = asked @ seen[:, :, None].swapaxes(-1, -2) + mask
        if earlier is not None:
            alone = (asked * keys[:, :, None]).sum(-1)[..., None]
            scores = arrays.concatenated([scores, alone], -1)
        shares = arrays.softmax(scores)
        heads = shares[..., :length] @ said[:, :, None]
        if earlier is not None:
            heads = heads + shares[..., length:] * values[:, :, None]
        heads = heads.reshape(texts, shape.heads, length, size)
        if gates.shape[-1]:
            heads = heads / (1.0 + (-gates).exp())
        heads = heads.swapaxes(1, 2).reshape(texts, length, -1)
        return self.linear(heads, f"{block}attn_output"), (keys, values)

    def _by_head(self, x: Array, name: str, heads: int) -> Array:
        """(B, T, inputs) to (B, heads, T, outputs / heads)."""
        return self.linear(x, name).reshape(x.shape[0], x.shape[1], heads, -1).swapaxes(1, 2)

    def _placed(self, x: Array, name: str) -> Array:
        """Normed, if the architecture norms each head, and rotated."""
        if f"{name}_norm.weight" in self.weights:
            x = self.norm(x, f"{name}_norm")
        return self.rotation.turned(self.arrays, x)


def causal(arrays: Arrays, length: int, *, with_own: bool = True) -> Array:
    """To be added to scores, (T, T): positions see those before, and perhaps themselves."""
    seen = np.tri(length, k=0 if with_own else -1, dtype=bool)
    return arrays.array(np.where(seen, 0.0, -1e30).astype(np.float32))
