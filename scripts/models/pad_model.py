"""Make a large model with exactly the outputs of a small one, by zero padding.

Run: `python -m scripts.models.pad_model SOURCE TARGET`; for an EAGLE-3 head of the small model,
which then drafts the same beside the large one, add `--beside LARGE`.

Every matrix of a llama GGUF is padded with zeros to a larger width and layers that add nothing are
appended, so that the file has the cost of a large model and the words of the small one. It is a
realistic target for measurements where no large model can be had; figures got with it must say
so.

A quantized row is padded in its own blocks, of which all-zero bytes mean zeros; what was there
stays bit for bit. An RMS norm over D instead of d values keeps its result when its weights are
multiplied by sqrt(d/D) and its epsilon by d/D.
"""

import argparse
import math
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import numpy as np
from numpy.typing import NDArray

from app.builtin_prompts import built_in_prompts
from backends import llamacpp
from backends.base import SpecchatError, UsageError
from backends.llamacpp.requantize import requantize
from models.self_draft.recipe import QUANTIZATIONS

_WIDTH_PER_LAYER = 90
"""Of usual models: 8B has 4,096 by 32 layers, 70B 8,192 by 80."""

_MOST_LAYERS = 128


@dataclass(frozen=True, slots=True)
class Shape:
    """The extents of a llama model; head_size stays, the numbers of heads grow in step."""

    width: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    n_vocab: int

    @property
    def head_size(self) -> int:
        """Numbers per attention head."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """Weights of all matrices, the embedding counted once."""
        kv_width = self.kv_heads * self.head_size
        layer = self.width * (2 * self.width + 2 * kv_width + 3 * self.feed_forward)
        return self.n_vocab * self.width + self.layers * layer

    def resized(self, width: int, layers: int, feed_forward: int | None = None) -> "Shape":
        """Another width, by default with the feed-forward in proportion."""
        if feed_forward is None:
            feed_forward = math.ceil(self.feed_forward * width / self.width / 256) * 256
        heads = width // self.head_size
        kv_heads = heads * self.kv_heads // self.heads
        return Shape(width, feed_forward, layers, heads, kv_heads, self.n_vocab)


def target_shape(source: Shape, parameters: float) -> Shape:
    """A shape of about so many parameters; one that changes no rounding where there is one.

    Raises:
        UsageError: it is smaller than the source.
    """
    layers = range(source.layers, max(_MOST_LAYERS, source.layers) + 1)
    exact = [
        shape
        for factor in (4, 16)
        for count in layers
        if (shape := _with_width(source, factor * source.width, count, parameters)) is not None
    ]
    if exact:
        usual = source.feed_forward / source.width
        return min(exact, key=lambda shape: abs(shape.feed_forward / shape.width - usual))
    # A group of query heads shares a key head: whole groups only.
    unit = source.head_size * source.heads // source.kv_heads
    shapes = [_widest(source, count, unit, parameters) for count in layers]
    wide = [shape for shape in shapes if shape.width >= source.width]
    if not wide:
        raise UsageError("that is smaller than the source", f"{source.parameters:,} parameters")
    return min(wide, key=lambda shape: abs(shape.width / shape.layers - _WIDTH_PER_LAYER))


def _with_width(source: Shape, width: int, layers: int, parameters: float) -> Shape | None:
    """The shape of a width whose feed-forward makes up the parameters; None where it is odd.

    With a width of 4 or 16 times the source's, sqrt(d/D) is a power of two: norms, and with them
    every quantized activation, keep their bits.
    """
    without = source.resized(width, layers, 0).parameters
    feed_forward = round((parameters - without) / (3 * width * layers) / 256) * 256
    if not max(source.feed_forward, width) <= feed_forward <= 4 * width:
        return None
    return source.resized(width, layers, feed_forward)


def _widest(source: Shape, layers: int, unit: int, parameters: float) -> Shape:
    width = unit
    while source.resized(width + unit, layers).parameters <= parameters:
        width += unit
    return source.resized(width, layers)


@contextmanager
def quantized_source(source: Path, quantization: str | None, beside: Path) -> Generator[Path]:
    """The source itself, or a quantized copy in the folder of a file, kept for the block.

    Raises:
        SpecchatError: it cannot be quantized.
    """
    if quantization is None:
        yield source
        return
    with TemporaryDirectory(dir=beside.parent) as folder:
        quantized = Path(folder) / "quantized.gguf"
        for _ in requantize(source, quantized, quantization):
            pass
        yield quantized


_UNITS = {"M": 10**6, "B": 10**9}


def shape_of(reader: gguf.GGUFReader) -> Shape:
    """The extents of a file.

    Raises:
        UsageError: it is no plain llama model, and no EAGLE-3 head.
    """
    architecture = _value(reader, "general.architecture")
    is_known = architecture in ("llama", "eagle3")
    if not is_known or any(".bias" in tensor.name for tensor in reader.tensors):
        raise UsageError("only plain llama models can be padded", f"this one is {architecture}")
    return Shape(
        width=int(_value(reader, f"{architecture}.embedding_length")),
        feed_forward=int(_value(reader, f"{architecture}.feed_forward_length")),
        layers=int(_value(reader, f"{architecture}.block_count")),
        heads=int(_value(reader, f"{architecture}.attention.head_count")),
        kv_heads=int(_value(reader, f"{architecture}.attention.head_count_kv")),
        n_vocab=len(reader.fields["tokenizer.ggml.tokens"].data),
    )


def pad(source: Path, target: Path, size: float | Path, *, is_sparse: bool = False) -> Shape:
    """Write source, padded to about so many parameters, to target; returns its shape.

    size: a file, whose width a head takes. is_sparse: rows of zeros take no room on the disk, and
    are read from it in no time.

    Raises:
        UsageError: source is no plain llama model, or not smaller.
    """
    reader = gguf.GGUFReader(source)
    small = shape_of(reader)
    if isinstance(size, Path):
        large = replace(shape_of(gguf.GGUFReader(size)), layers=small.layers)
    else:
        large = target_shape(small, size)
    writer = gguf.GGUFWriter(target, _value(reader, "general.architecture"))
    _write_metadata(reader, writer, small, large)
    tensors = list(_padded_tensors(reader.tensors, small, large))
    for tensor in tensors:
        writer.add_tensor_info(
            tensor.name, tensor.shape, np.dtype(np.uint8), tensor.size, raw_dtype=tensor.kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    if not is_sparse:
        for tensor in tensors:
            writer.write_tensor_data(tensor.data())
    writer.close()
    if is_sparse:
        _append_sparsely(target, tensors, writer.data_alignment)
    return large


def _append_sparsely(target: Path, tensors: Sequence["_Padded"], alignment: int) -> None:
    """Append tensors to a header, leaving out the zeros at the end of every row."""
    with target.open("r+b") as file:
        at = _aligned(file.seek(0, os.SEEK_END), alignment)
        for tensor in tensors:
            for row, held in enumerate(tensor.source):
                file.seek(at + row * tensor.row_bytes)
                file.write(held.tobytes())
            at = _aligned(at + tensor.size, alignment)
        file.truncate(at)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


@dataclass(frozen=True, slots=True)
class _Padded:
    """A tensor to be: its bytes are made when they are written, one tensor at a time."""

    name: str
    kind: gguf.GGMLQuantizationType
    rows: int
    row_bytes: int
    source: NDArray[np.uint8]
    """Bytes that stay, shape (rows of the source, bytes of such a row); none for a new layer."""
    parts: int = 1
    """Of a row, side by side, each of which is padded."""

    @property
    def shape(self) -> tuple[int, ...]:
        """In bytes, as the writer wants the shape of quantized data."""
        return (self.rows, self.row_bytes) if self.rows > 1 else (self.row_bytes,)

    @property
    def size(self) -> int:
        return self.rows * self.row_bytes

    def data(self) -> NDArray[np.uint8]:
        padded = np.zeros((self.rows, self.parts, self.row_bytes // self.parts), dtype=np.uint8)
        rows, row_bytes = self.source.shape
        held = self.source.reshape(rows, self.parts, row_bytes // self.parts)
        padded[:rows, :, : held.shape[2]] = held
        return padded.reshape(self.shape)


def _padded_tensors(
    tensors: Sequence[gguf.ReaderTensor], small: Shape, large: Shape
) -> Iterator[_Padded]:
    for tensor in tensors:
        yield _padded(tensor, tensor.name, small, large, keep=True)
    first_layer = [tensor for tensor in tensors if tensor.name.startswith("blk.0.")]
    for layer in range(small.layers, large.layers):
        for tensor in first_layer:
            name = tensor.name.replace("blk.0.", f"blk.{layer}.")
            yield _padded(tensor, name, small, large, keep=False)


def _padded(
    tensor: gguf.ReaderTensor, name: str, small: Shape, large: Shape, *, keep: bool
) -> _Padded:
    """A tensor at its larger extents; what a new layer holds is zero, so that it adds nothing."""
    kind = tensor.tensor_type
    columns, *more = (int(extent) for extent in tensor.shape)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if kind is gguf.GGMLQuantizationType.I64:  # the tokens that a head drafts
        numbers = np.asarray(tensor.data).view(np.uint8).reshape(1, -1)
        return _Padded(name, kind, 1, numbers.size, numbers)
    if not more:
        weights = np.asarray(tensor.data, dtype=np.float32).reshape(1, -1)
        scaled = (weights * math.sqrt(small.width / large.width)).astype(np.float32)
        held = scaled.view(np.uint8) if keep else np.zeros((1, 0), dtype=np.uint8)
        return _Padded(name, gguf.GGMLQuantizationType.F32, 1, 4 * large.width, held)
    extents = {
        small.width: large.width,
        small.feed_forward: large.feed_forward,
        small.kv_heads * small.head_size: large.kv_heads * large.head_size,
        small.n_vocab: small.n_vocab,
    }
    parts = 1 if columns in extents else columns // small.width  # states side by side
    wide = parts * extents[columns // parts]
    if wide % block:
        raise UsageError(f"{tensor.name} cannot be padded", f"{wide} is no multiple of {block}")
    row_bytes = columns // block * block_bytes
    held = np.asarray(tensor.data).view(np.uint8).reshape(-1, row_bytes)
    held = held if keep else held[:0]
    rows = extents.get(more[0], more[0])
    return _Padded(name, kind, rows, wide // block * block_bytes, held, parts)


def _write_metadata(
    reader: gguf.GGUFReader, writer: gguf.GGUFWriter, small: Shape, large: Shape
) -> None:
    architecture = _value(reader, "general.architecture")
    epsilon = f"{architecture}.attention.layer_norm_rms_epsilon"
    changed = {
        "general.name": f"padded to {large.parameters:,}",
        f"{architecture}.embedding_length": large.width,
        f"{architecture}.target_hidden_size": large.width,
        f"{architecture}.feed_forward_length": large.feed_forward,
        f"{architecture}.block_count": large.layers,
        f"{architecture}.attention.head_count": large.heads,
        f"{architecture}.attention.head_count_kv": large.kv_heads,
        epsilon: _value(reader, epsilon) * small.width / large.width,
    }
    for name, entry in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        inner = entry.types[1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, changed.get(name, entry.contents()), entry.types[0], inner)


def _value(reader: gguf.GGUFReader, name: str):
    return reader.fields[name].contents()


def agreement(source: Path, target: Path, most: int = 10_000) -> tuple[float, float]:
    """Share of positions with the same likeliest token, and the largest difference of logits.

    most: positions that are looked at.
    """
    models = [llamacpp.load(path) for path in (source, target)]
    text = " ".join(prompt.text for prompt in built_in_prompts())
    tokens = models[0].tokenizer.encode(text, special=False)[:most]
    n_ctx = min(len(tokens), models[0].info.context_limit)
    contexts = [model.open(n_ctx) for model in models]
    same, difference = 0, 0.0
    for token in tokens[:n_ctx]:
        ours, theirs = (context.forward([token], 1)[0] for context in contexts)
        same += int(ours.argmax()) == int(theirs.argmax())
        difference = max(difference, float(np.abs(ours - theirs).max()))
    for model in models:
        model.close()
    return same / n_ctx, difference


def parameters_of(text: str) -> float:
    """A number such as 1.1B or 300M.

    Raises:
        ValueError: it is written otherwise.
    """
    return float(text[:-1]) * _UNITS[text[-1].upper()]


def main() -> None:
    """Pad, quantize first if asked to, and check the result against the source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--parameters", type=parameters_of, default="1.1B", help="such as 8B")
    parser.add_argument("--beside", type=Path, help="a padded model, of whose width a head becomes")
    parser.add_argument("--quantize", choices=QUANTIZATIONS, help="before padding")
    parser.add_argument(
        "--sparse", action="store_true", help="zeros take no room on disk; nothing is compared"
    )
    arguments = parser.parse_args()
    try:
        target, is_sparse = arguments.target, arguments.sparse
        with quantized_source(arguments.source, arguments.quantize, target) as source:
            size = arguments.beside or arguments.parameters
            shape = pad(source, target, size, is_sparse=is_sparse)
            print(f"{shape.parameters:,} parameters: width {shape.width}, {shape.layers} layers")
            if is_sparse or arguments.beside:
                return
            same, difference = agreement(source, target)
    except SpecchatError as error:
        sys.exit(str(error))
    print(f"same likeliest token at {same:.1%} of positions, logits differ by {difference:.3f}")


if __name__ == "__main__":
    main()
