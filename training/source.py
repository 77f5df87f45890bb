"""What is read of a model's file or folder: its last layer, embeddings and output, or all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError
from backends.files.mlx_folder import read_settings
from backends.files.mlx_gguf import MODULES
from training.layer import LayerShape

Matrix = NDArray[np.float32]
Rows = NDArray[np.float16]

LAYER = {ours: theirs for ours, theirs in MODULES.items() if ours.startswith(("attn_", "ffn_"))}
"""Names of what a plain layer has: llama.cpp's, and those of published folders."""


@dataclass(frozen=True, slots=True)
class Source:
    """Weights of a target.

    layers: without next-token layers. last: the last of them, rotated pairs half a head apart;
    empty if it is of another form.
    embeddings, output: of all tokens, (V, d).
    """

    path: Path
    shape: LayerShape
    layers: int
    last: Mapping[str, Matrix]
    output_norm: Matrix
    embeddings: Rows
    output: Rows

    @property
    def n_vocab(self) -> int:
        return len(self.embeddings)


def read_source(path: Path) -> Source:
    """Read a GGUF file or an MLX folder.

    Raises:
        ModelError: a part that every head needs is missing.
    """
    try:
        return _of_folder(path) if path.is_dir() else GgufFile(path).source(for_head=True)
    except (KeyError, OSError, ValueError) as error:
        raise ModelError(f"{path.name} cannot teach a head", f"{error} is missing in it") from error


class GgufFile:
    """A model's file, weights of which are read as floats."""

    def __init__(self, path: Path) -> None:
        self.path, self._reader = path, gguf.GGUFReader(path)
        self.architecture = cast("str", self._reader.fields["general.architecture"].contents())
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def fact(self, key: str) -> Any:
        """Of the architecture; None if it is not told."""
        field = self._reader.get_field(f"{self.architecture}.{key}")
        return None if field is None else field.contents()

    def number(self, key: str, usual: float | None = None) -> float:
        """Of the last layer, where there is one for each. Raises KeyError: none, nor a usual."""
        found: Any = self.fact(key)
        if found is None:
            found = usual
        if found is None:
            raise KeyError(key)
        return float(np.ravel(found)[-1])

    def values(self, name: str) -> Matrix:
        tensor = self._tensors[name]
        return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def weights(self, wanted: Callable[[str], bool] = bool) -> dict[str, Matrix]:
        """All those whose names are wanted."""
        return {name: self.values(name) for name in self._tensors if wanted(name)}

    def source(self, *, for_head: bool = False) -> Source:
        """for_head: with pairs half a head apart, all of which are rotated, as in heads."""
        number = self.number
        width, heads = int(number("embedding_length")), int(number("attention.head_count"))
        size = int(number("attention.key_length", width / heads))
        layers = int(number("block_count") - number("nextn_predict_layers", 0))
        are_pairs = self.architecture == "llama"
        shape = LayerShape(
            width,
            int(number("feed_forward_length", 4 * width)),
            heads,
            int(number("attention.head_count_kv", heads)),
            size,
            number("rope.freq_base", 10_000.0),
            number("attention.layer_norm_rms_epsilon", 1e-5),
            0 if for_head else int(number("rope.dimension_count", size)),
            are_pairs and not for_head,
        )
        last = _last(shape, lambda name: self.values(f"blk.{layers - 1}.{name}.weight"))
        if are_pairs and for_head and last:
            for name, count in (("attn_q", shape.heads), ("attn_k", shape.kv_heads)):
                last[name] = regrouped(last[name], count, in_pairs=False)
        embeddings = self.values("token_embd.weight").astype(np.float16)
        has_output = "output.weight" in self._tensors
        output = self.values("output.weight").astype(np.float16) if has_output else embeddings
        norm = self.values("output_norm.weight")
        return Source(self.path, shape, layers, last, norm, embeddings, output)


def _of_folder(path: Path) -> Source:
    from training.mlx_arrays import stored_floats

    config = read_settings(path / "config.json")
    config |= config.get("text_config", {})
    names, values = stored_floats(path, config.get("quantization") or {})
    start = next(name[: -len("norm.weight")] for name in names if name.endswith("l.norm.weight"))
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
    has_output = f"{output}.weight" in names
    return Source(
        path,
        shape,
        layers,
        _last(shape, lambda name: values(f"{start}layers.{layers - 1}.{LAYER[name]}")),
        values(f"{start}norm"),
        embeddings,
        values(output).astype(np.float16) if has_output else embeddings,
    )


def _last(shape: LayerShape, read: Callable[[str], Matrix]) -> dict[str, Matrix]:
    """The last layer, none if it has other parts or other shapes than a plain one."""
    shapes = shape.weights()
    try:
        found = {name: read(name) for name in LAYER}
    except KeyError:
        return {}
    return found if all(found[name].shape == shapes[name] for name in LAYER) else {}


def regrouped(weights: Matrix, heads: int, *, in_pairs: bool) -> Matrix:
    """Rows of queries or keys with rotated pairs as neighbours, or half a head apart."""
    sizes = (heads, 2, -1) if in_pairs else (heads, -1, 2)
    return weights.reshape(*sizes, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)
