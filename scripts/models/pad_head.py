"""Pad an EAGLE-3 head as its model was padded, so that it drafts the same beside the larger one.

Run: `python -m scripts.models.pad_head HEAD LARGE TARGET`; LARGE is what pad_model made.

Every state has the small model's values and then zeros. So the head has the cost of one that was
trained for a model of that width. Matrices become Q8_0.
"""

import argparse
import math
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from scripts.models.pad_model import Shape, shape_of

_KIND = gguf.GGMLQuantizationType.Q8_0


def pad_head(
    head: Path, large: Path, target: Path, kind: gguf.GGMLQuantizationType = _KIND
) -> None:
    """Write a head, padded to a padded model, to target."""
    reader, wide = gguf.GGUFReader(head), shape_of(gguf.GGUFReader(large))
    small = _shape(reader)
    epsilon = "eagle3.attention.layer_norm_rms_epsilon"
    shrunk = small.width / wide.width
    changed = {
        "eagle3.embedding_length": wide.width,
        "eagle3.target_hidden_size": wide.width,
        "eagle3.feed_forward_length": wide.feed_forward,
        "eagle3.attention.head_count": wide.heads,
        "eagle3.attention.head_count_kv": wide.kv_heads,
        epsilon: reader.fields[epsilon].contents() * shrunk,
    }
    writer = gguf.GGUFWriter(target, "eagle3")
    for name, entry in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            inner = entry.types[1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, changed.get(name, entry.contents()), entry.types[0], inner)
    for tensor in reader.tensors:
        if tensor.name == "d2t":
            writer.add_tensor(tensor.name, np.asarray(tensor.data))
            continue
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim == 1:
            writer.add_tensor(
                tensor.name, _padded(values[None], small, wide)[0] * math.sqrt(shrunk)
            )
        else:
            rows = np.swapaxes(_padded(np.swapaxes(values, 0, 1), small, wide), 0, 1)
            padded = gguf.quantize(_padded(rows, small, wide), kind)
            writer.add_tensor(tensor.name, padded, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shape(reader: gguf.GGUFReader) -> Shape:
    """The extents of a head; n_vocab: the tokens that it drafts."""

    def number(key: str) -> int:
        return int(reader.fields[f"eagle3.{key}"].contents())

    drafted = [len(tensor.data) for tensor in reader.tensors if tensor.name == "d2t"]
    extents = number("embedding_length"), number("feed_forward_length"), 1
    heads = number("attention.head_count"), number("attention.head_count_kv")
    return Shape(*extents, *heads, drafted[0] if drafted else 0)


def _padded(values: NDArray[np.float32], small: Shape, wide: Shape) -> NDArray[np.float32]:
    """Columns at their larger extent: states, one or several side by side, or others."""
    columns = values.shape[1]
    extents = {
        small.feed_forward: wide.feed_forward,
        small.kv_heads * small.head_size: wide.kv_heads * wide.head_size,
        small.n_vocab: small.n_vocab,
    }
    if columns in extents:
        return np.pad(values, ((0, 0), (0, extents[columns] - columns)))
    parts = np.split(values, columns // small.width, axis=1)
    return np.hstack([np.pad(part, ((0, 0), (0, wide.width - small.width))) for part in parts])


def main() -> None:
    """Pad."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("head", "large", "target"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    pad_head(arguments.head, arguments.large, arguments.target)


if __name__ == "__main__":
    main()
