"""Files of a model."""

from pathlib import Path

from backends.files.gguf_header import parts

_OF_FOLDER = ("config.json", "tokenizer.json", "*.safetensors")


def model_files(path: Path) -> list[Path]:
    """Files that determine a model's output: parts of a GGUF file, or files of an MLX folder."""
    if not path.is_dir():
        return parts(path)
    return sorted(file for form in _OF_FOLDER for file in path.glob(form))


def stored_bytes(path: Path) -> int:
    """Total size of a model's files.

    Raises:
        OSError: one of them is missing.
    """
    return sum(file.stat().st_size for file in model_files(path))
