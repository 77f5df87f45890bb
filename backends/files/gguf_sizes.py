"""Sizes of a GGUF file's tensors by their type, to tell an incomplete file from a damaged one."""

from collections.abc import Sequence
from math import prod


def tensor_bytes(ggml_type: int, shape: Sequence[int]) -> int | None:
    """Bytes of a tensor without padding; None for an unknown type or a broken row."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(ggml_type)]
    except (KeyError, ValueError):
        return None
    return prod(shape) // block * size if shape[0] % block == 0 else None


def data_bytes(tensors: Sequence[tuple[Sequence[int], int, int]], alignment: int) -> int | None:
    """Bytes of all tensors, given as shape, type and offset in order of offset.

    None if their sizes do not explain their offsets: the file is then damaged, not incomplete.
    """
    end = 0
    for shape, ggml_type, offset in tensors:
        size = tensor_bytes(ggml_type, shape)
        if size is None or offset != -(-end // alignment) * alignment:
            return None
        end = offset + size
    return end
