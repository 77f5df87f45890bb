"""What a head begins with of its target: a file's last layer, embeddings and output."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError
from backends.files.mlx_folder import WEIGHT_FILES, stored_tensors

Matrix = NDArray[np.float32]
Rows = NDArray[np.float16]

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Names in published folders, and llama.cpp's, of what a plain layer has."""
_PERMUTED = ("llama", "eagle3")
"""Architectures in whose files pairs that are rotated together are neighbours."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Of a layer. base: of the rotary frequencies; epsilon: of the norms."""

    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    base: float
    epsilon: float


@dataclass(frozen=True, slots=True)
class Source:
    """Weights of a target.

    last: its last layer by published names, rotated pairs half a head apart; empty if it is of
    another form. embeddings, output: of all tokens, (V, d).
    """

    path: Path
    shape: LayerShape
    layers: int
    last: Mapping[str, Matrix]
    output_norm: Matrix
    embeddings: Rows
    output: Rows

    @property
    def width(self) -> int:
        return self.shape.width

    @property
    def n_vocab(self) -> int:
        return len(self.embeddings)


def read_source(path: Path) -> Source:
    """Read a GGUF file or an MLX folder.

    Raises:
        ModelError: a part that every head needs is missing.
    """
    try:
        return _of_folder(path) if path.is_dir() else _of_file(path)
    except (KeyError, OSError, ValueError) as error:
        raise ModelError(f"{path.name} cannot teach a head", f"{error} is missing in it") from error


def _of_file(path: Path) -> Source:
    reader = gguf.GGUFReader(path)
    architecture = str(reader.fields["general.architecture"].contents())

    def number(key: str, usual: float | None = None) -> float:
        field = reader.get_field(f"{architecture}.{key}")
        if field is None:
            if usual is None:
                raise KeyError(key)
            return usual
        found: Any = field.contents()
        return float(np.ravel(found)[-1])

    stored = {tensor.name: tensor for tensor in reader.tensors}

    def values(name: str) -> Matrix:
        tensor = stored[f"{name}.weight"]
        return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    width, heads = int(number("embedding_length")), int(number("attention.head_count"))
    shape = LayerShape(
        width,
        int(number("feed_forward_length", 4 * width)),
        heads,
        int(number("attention.head_count_kv", heads)),
        int(number("attention.key_length", width / heads)),
        number("rope.freq_base", 10_000.0),
        number("attention.layer_norm_rms_epsilon", 1e-5),
    )
    layers = int(number("block_count"))
    last = _last(shape, lambda name: values(f"blk.{layers - 1}.{LAYER[name]}"))
    if architecture in _PERMUTED and last:
        last["self_attn.q_proj"] = halved(last["self_attn.q_proj"], shape.heads)
        last["self_attn.k_proj"] = halved(last["self_attn.k_proj"], shape.kv_heads)
    embeddings = values("token_embd").astype(np.float16)
    has_output = "output.weight" in stored
    output = values("output").astype(np.float16) if has_output else embeddings
    return Source(path, shape, layers, last, values("output_norm"), embeddings, output)


def _of_folder(path: Path) -> Source:
    from training.mlx_arrays import dequantized

    config = json.loads((path / "config.json").read_text("utf-8"))
    config |= config.get("text_config", {})
    files = {name: file for file in path.glob(WEIGHT_FILES) for name in stored_tensors(file)}
    start = next(name[: -len("norm.weight")] for name in files if name.endswith("l.norm.weight"))

    def values(name: str) -> Matrix:
        return dequantized(files[f"{name}.weight"], name, config.get("quantization") or {})

    heads, width = config["num_attention_heads"], config["hidden_size"]
    rope = config.get("rope_parameters") or config
    shape = LayerShape(
        width,
        config["intermediate_size"],
        heads,
        config.get("num_key_value_heads", heads),
        config.get("head_dim") or width // heads,
        float(rope.get("rope_theta", 10_000.0)),
        float(config.get("rms_norm_eps", 1e-5)),
    )
    layers = config["num_hidden_layers"]
    embeddings = values(f"{start}embed_tokens").astype(np.float16)
    output = start.removesuffix("model.") + "lm_head"
    return Source(
        path,
        shape,
        layers,
        _last(shape, lambda name: values(f"{start}layers.{layers - 1}.{name}")),
        values(f"{start}norm"),
        embeddings,
        values(output).astype(np.float16) if f"{output}.weight" in files else embeddings,
    )


def _last(shape: LayerShape, read: Callable[[str], Matrix]) -> dict[str, Matrix]:
    """The last layer, none if it has other parts or other shapes than a plain one."""
    shapes = layer_shapes(shape)
    try:
        found = {name: read(name) for name in LAYER}
    except KeyError:
        return {}
    return found if all(found[name].shape == shapes[name] for name in LAYER) else {}


def layer_shapes(shape: LayerShape, inputs: int = 1) -> dict[str, tuple[int, ...]]:
    """Shapes of a plain layer's weights, attention of which reads inputs states side by side."""
    width, inner = shape.width, shape.feed_forward
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    return {
        "input_layernorm": (width,),
        "self_attn.q_proj": (queries, inputs * width),
        "self_attn.k_proj": (keys, inputs * width),
        "self_attn.v_proj": (keys, inputs * width),
        "self_attn.o_proj": (width, queries),
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }


def halved(weights: Matrix, heads: int) -> Matrix:
    """Rows of queries or keys whose rotated pairs lie half a head apart, from neighbours."""
    pairs = weights.reshape(heads, -1, 2, weights.shape[1])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


def neighboured(weights: Matrix, heads: int) -> Matrix:
    """The reverse."""
    pairs = weights.reshape(heads, 2, -1, weights.shape[1])
    return pairs.swapaxes(1, 2).reshape(weights.shape)
