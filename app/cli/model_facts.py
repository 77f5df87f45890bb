"""What a model's file says of itself, without loading it."""

from pathlib import Path
from typing import Any

from backends.gguf_header import parts, read_header
from models.json_file import read_object
from models.quantization import quantization_of


def facts_of(path: Path) -> dict[str, Any]:
    """Figures of a GGUF file or an MLX folder; None where it does not say.

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
    bits = quantization.get("bits") if isinstance(quantization, dict) else None
    return {
        "format": "MLX",
        "architecture": config.get("model_type"),
        "quantization": f"{bits}-bit" if bits else None,
        "context": config.get("max_position_embeddings"),
        "layers": config.get("num_hidden_layers"),
        "vocabulary": config.get("vocab_size"),
    }
