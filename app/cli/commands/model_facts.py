"""Reads metadata of a model's file without loading it."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from backends.files.gguf_header import parts, read_header
from backends.files.mlx_folder import WEIGHT_FILES
from backends.files.safetensors_header import StoredTensor, stored_tensors
from models.json_file import read_object
from models.model_names import quantization_of


def facts_of(path: Path) -> dict[str, Any]:
    """Metadata of a GGUF file or an MLX folder; None where it is absent.

    Raises:
        ModelError: the file is missing or damaged.
    """
    return _of_folder(path) if path.is_dir() else _of_file(path)


def _of_file(path: Path) -> dict[str, Any]:
    headers = [read_header(part) for part in parts(path)]
    first = headers[0]
    return {
        "format": "GGUF",
        "title": first.metadata.get("general.name"),
        "architecture": first.architecture or None,
        "parameters": sum(tensor.parameters for header in headers for tensor in header.tensors),
        "quantization": quantization_of(path.name),
        "context": first.integer("context_length") or None,
        "layers": first.integer("block_count") or None,
        "vocabulary": first.array_lengths.get("tokenizer.ggml.tokens"),
        "chat_template": "tokenizer.chat_template" in first.metadata,
        "license": first.metadata.get("general.license"),
        "parts": len(headers),
    }


def _of_folder(path: Path) -> dict[str, Any]:
    config = read_object(path / "config.json")
    quantization = config.get("quantization")
    is_quantized = isinstance(quantization, dict)
    bits = cast("dict[str, Any]", quantization).get("bits") if is_quantized else None
    tensors: dict[str, StoredTensor] = {}
    for file in path.glob(WEIGHT_FILES):
        tensors |= stored_tensors(file)
    template = read_object(path / "tokenizer_config.json").get("chat_template")
    return {
        "format": "MLX",
        "architecture": config.get("model_type"),
        "parameters": None if bits else _parameters(tensors),
        "quantization": f"{bits}-bit" if bits else _usual_type(tensors),
        "context": config.get("max_position_embeddings"),
        "layers": config.get("num_hidden_layers"),
        "vocabulary": config.get("vocab_size"),
        "chat_template": bool(template) or (path / "chat_template.jinja").is_file(),
    }


_TYPES = {"F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2)}
"""Name and bytes per weight, by data type."""


def _usual_type(tensors: Mapping[str, StoredTensor]) -> str | None:
    """The data type of most bytes."""
    stored = Counter[str]()
    for tensor in tensors.values():
        stored[tensor.dtype] += tensor.bytes
    return _TYPES.get(stored.most_common(1)[0][0], (None, 0))[0] if stored else None


def _parameters(tensors: Mapping[str, StoredTensor]) -> int | None:
    if not all(tensor.dtype in _TYPES for tensor in tensors.values()):
        return None
    return sum(tensor.bytes // _TYPES[tensor.dtype][1] for tensor in tensors.values()) or None
