"""Weights of a self-drafter before it is made, by the tensors of its target."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from backends.files.gguf_header import Tensor, parts, read_header
from backends.files.mlx_folder import WEIGHT_FILES
from backends.files.safetensors_header import stored_tensors
from models.self_draft.recipe import FILE_BITS, Recipe

_LAYER = re.compile(r"(?:^blk|\blayers)\.(\d+)\.")
_OUTPUT, _EMBEDDING = "output.weight", "token_embd.weight"

_K_ROW = 256
"""Numbers of a block in formats whose name has a k: other rows take the next larger format."""

_NARROW_BITS = {
    "q2_k": 4.5, "q3_k_s": 4.5, "q3_k_m": 4.9, "q4_k_s": 5.6, "q4_k_m": 5.9, "q5_k_m": 6.4,
    "q6_k": 8.5,
}  # fmt: skip
"""Bits per weight of matrices with such rows, by quantization: tensor_type_fallback of llama.cpp's
src/llama-quant.cpp, with a seventh of the weights in a larger format where formats are mixed."""

_OUTPUT_BITS, _NARROW_OUTPUT_BITS = 6.5625, 8.5
"""Of the matrix that gives the logits, and may be the embedding: q6_k, or else q8_0."""


def weights_made(target: Path, recipe: Recipe) -> int:
    """Approximate bytes of weights in the file that a recipe makes from a GGUF model.

    Raises:
        ModelError: the model cannot be read.
    """
    tensors = _tensors(target)
    names = {tensor.name for tensor in tensors}
    output = _OUTPUT if _OUTPUT in names else _EMBEDDING
    return round(
        sum(
            _bytes(tensor, recipe.quantization, is_output=tensor.name == output)
            for tensor in tensors
            if _layer(tensor.name) not in recipe.skipped_layers
        )
    )


def kept_share(target: Path, skipped: Sequence[int]) -> float:
    """Share of a model's bytes that are left without some layers, from 0 to 1.

    Raises:
        ModelError: the model cannot be read.
    """
    if not skipped:
        return 1.0
    sizes = list(_sizes(target))
    kept = sum(size for name, size in sizes if _layer(name) not in skipped)
    return kept / max(sum(size for _, size in sizes), 1)


def _sizes(target: Path) -> Iterable[tuple[str, int]]:
    """Names of a model's tensors, and their bytes."""
    if target.is_dir():
        for file in sorted(target.glob(WEIGHT_FILES)):
            for name, stored in stored_tensors(file).items():
                yield name, stored.bytes
        return
    for tensor in _tensors(target):
        yield tensor.name, tensor.stored_bytes


def _tensors(target: Path) -> list[Tensor]:
    return [tensor for part in parts(target) for tensor in read_header(part).tensors]


def _layer(name: str) -> int | None:
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def _bytes(tensor: Tensor, quantization: str | None, *, is_output: bool) -> float:
    if quantization is None or not _is_quantized(tensor):
        return tensor.stored_bytes
    is_narrow = tensor.shape[0] % _K_ROW != 0
    bits = FILE_BITS[quantization]
    if is_output:
        bits = max(bits, _NARROW_OUTPUT_BITS if is_narrow else _OUTPUT_BITS)
    elif is_narrow:
        bits = _NARROW_BITS.get(quantization, bits)
    return tensor.parameters * bits / 8


def _is_quantized(tensor: Tensor) -> bool:
    """Whether llama.cpp quantizes a tensor: matrices, but for routers."""
    is_matrix = sum(extent > 1 for extent in tensor.shape) > 1
    return is_matrix and tensor.name.endswith(".weight") and "ffn_gate_inp" not in tensor.name
