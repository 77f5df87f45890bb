"""What a head takes over from its model's file, and the file it is written to."""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from scripts.heads.eagle3_layer import Array, Shape, Weights

_MATRICES = (
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
)  # fmt: skip
_FUSION, _OUTPUT_NORM = "fc", "output_norm"


@dataclass(frozen=True, slots=True)
class Source:
    """A model's weights that a head begins with. embeddings: of all tokens, (V, E)."""

    path: Path
    shape: Shape
    layers: int
    last: Weights
    output_norm: Array
    embeddings: Array
    output: Array

    @classmethod
    def of(cls, path: Path) -> "Source":
        """Read a llama."""
        reader = gguf.GGUFReader(path)

        def number(key: str, usual: float = 0.0) -> float:
            field = reader.get_field(f"llama.{key}")
            return usual if field is None else float(field.contents())

        stored = {tensor.name: tensor for tensor in reader.tensors}

        def values(name: str) -> Array:
            tensor = stored[f"{name}.weight"]
            return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

        layers = int(number("block_count"))
        names = (*_MATRICES, "attn_norm", "ffn_norm")
        embeddings = values("token_embd")
        return cls(
            path,
            Shape(
                int(number("attention.head_count")),
                int(number("attention.head_count_kv")),
                number("rope.freq_base", 10_000.0),
                number("attention.layer_norm_rms_epsilon"),
            ),
            layers,
            {name: values(f"blk.{layers - 1}.{name}") for name in names},
            values(_OUTPUT_NORM),
            embeddings,
            values("output") if "output.weight" in stored else embeddings,
        )

    @property
    def width(self) -> int:
        """Of the hidden states."""
        return self.embeddings.shape[1]


def write_head(
    path: Path, source: Source, weights: Weights, taps: tuple[int, ...], drafted: NDArray[np.int64]
) -> None:
    """Write a head without embeddings of its own; drafted: the tokens that it knows, in order."""
    writer = gguf.GGUFWriter(path, "eagle3")
    reader = gguf.GGUFReader(source.path)
    for name, entry in reader.fields.items():
        if name.startswith("tokenizer."):
            inner = entry.types[1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, entry.contents(), entry.types[0], inner)
    shape, width = source.shape, source.width
    size = len(weights["attn_q"]) // shape.heads
    writer.add_name(f"EAGLE-3 head for {source.path.stem}")
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(len(weights["ffn_gate"]))
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.base)
    writer.add_rope_dimension_count(size)
    writer.add_array("eagle3.target_layers", list(taps))
    writer.add_uint32("eagle3.target_hidden_size", width)
    for name, values in weights.items():
        place = "" if name in (_FUSION, _OUTPUT_NORM) else "blk.0."
        writer.add_tensor(
            f"{place}{name}.weight", values.astype(np.float16 if values.ndim > 1 else np.float32)
        )
    writer.add_tensor("output.weight", source.output[drafted].astype(np.float16))
    writer.add_tensor("d2t", drafted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
