"""Make a mixture of experts of a small llama model, with the words of the small one.

Run: `python -m scripts.models.make_experts SOURCE TARGET --experts 16 --used 2`.

Every feed-forward network becomes equal copies behind a router of random weights. The weights of
the experts that a token is sent to sum to one, so that answers stay those of the source up to
rounding, and routing follows the hidden states of real text. It is a realistic target for
measurements where no mixture of experts can be had; figures got with it must say so: trained
routers choose their experts more evenly, and a drafter with fewer experts would be as good as the
whole.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from backends.base import SpecchatError
from models.self_draft.recipe import QUANTIZATIONS
from scripts.models.pad_model import agreement, shape_of
from scripts.models.quantized_source import quantized_source

_FEED_FORWARD = re.compile(r"(blk\.\d+)\.ffn_(gate|up|down)\.weight")
_COMPARED = 300
"""Tokens of text on which the result is compared with its source."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor to be written; data: its bytes, shape (experts, rows, bytes) or shorter."""

    name: str
    kind: gguf.GGMLQuantizationType
    data: NDArray[np.uint8]


def make_experts(source: Path, target: Path, experts: int, used: int, seed: int = 0) -> None:
    """Write source to target with so many experts, of which a token uses some.

    Raises:
        UsageError: source is no plain llama model.
    """
    reader = gguf.GGUFReader(source)
    width = shape_of(reader).width
    writer = gguf.GGUFWriter(target, "llama")
    for name, entry in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            inner = entry.types[1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, entry.contents(), entry.types[0], inner)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(used)
    tensors = list(_tensors(reader, experts, width, np.random.default_rng(seed)))
    for tensor in tensors:
        writer.add_tensor_info(
            tensor.name,
            tensor.data.shape,
            np.dtype(np.uint8),
            tensor.data.nbytes,
            raw_dtype=tensor.kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(np.ascontiguousarray(tensor.data))
    writer.close()


def _tensors(
    reader: gguf.GGUFReader, experts: int, width: int, random: np.random.Generator
) -> Iterator[_Tensor]:
    for tensor in reader.tensors:
        data = np.asarray(tensor.data).view(np.uint8)
        part = _FEED_FORWARD.fullmatch(tensor.name)
        if part is None:
            yield _Tensor(tensor.name, tensor.tensor_type, data)
            continue
        if part[2] == "gate":
            router = random.normal(0.0, width**-0.5, (experts, width)).astype(np.float32)
            f32 = gguf.GGMLQuantizationType.F32
            yield _Tensor(f"{part[1]}.ffn_gate_inp.weight", f32, router.view(np.uint8))
        copies = np.broadcast_to(data, (experts, *data.shape))
        yield _Tensor(f"{part[1]}.ffn_{part[2]}_exps.weight", tensor.tensor_type, copies)


def main() -> None:
    """Make the file, quantized first if asked to, and compare it with its source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--used", type=int, default=2, help="experts of a token")
    parser.add_argument("--quantize", choices=QUANTIZATIONS, help="first")
    arguments = parser.parse_args()
    try:
        target = arguments.target
        with quantized_source(arguments.source, arguments.quantize, target) as source:
            make_experts(source, target, arguments.experts, arguments.used)
            same, difference = agreement(source, target, _COMPARED)
    except SpecchatError as error:
        sys.exit(str(error))
    print(f"{target.stat().st_size / 1e6:,.0f} MB")
    print(f"same likeliest token at {same:.1%} of positions, logits differ by {difference:.3f}")


if __name__ == "__main__":
    main()
