"""Models on this machine, and scanning folders for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import cast

from backends.files.gguf_header import parts
from models.json_file import read_object
from models.model_names import is_model_file, part

_DEEPEST = 4


class Origin(StrEnum):
    """Owner of the folder a model is in."""

    BUNDLED = "bundled"
    MODELS_FOLDER = "models folder"
    HUB_CACHE = "hub cache"
    LM_STUDIO = "LM Studio"
    LLAMA_CPP = "llama.cpp"
    OLLAMA = "Ollama"


@dataclass(frozen=True, slots=True)
class Installed:
    """Model that can be run from its present place."""

    name: str
    path: Path
    """A GGUF file, the first of its parts, or an MLX folder."""
    size_bytes: int
    origin: Origin


def gguf_models(folder: Path, depth: int = 1) -> Iterator[tuple[Path, int]]:
    """Complete GGUF models below a folder with their sizes; of split ones the first part."""
    for path in files_below(folder, depth):
        if is_model_file(path.name) and part(path.name)[0] == 1:
            size = _size(parts(path))
            if size:
                yield path, size


def mlx_folder_size(folder: Path, name: str) -> int | None:
    """Size of an MLX folder, None if it is none or weights are missing.

    name: its owner's name for it, as folders of safetensors for other engines look alike.
    """
    config = read_object(folder / "config.json")
    if not config or ("quantization" not in config and "mlx" not in name.lower()):
        return None
    weights = read_object(folder / "model.safetensors.index.json").get("weight_map")
    named = cast("dict[str, object]", weights).values() if isinstance(weights, dict) else ()
    needed = [folder / str(file) for file in set(named)] or sorted(folder.glob("*.safetensors"))
    return _size(list(files_below(folder, 1))) if _size(needed) else None


def files_below(folder: Path, depth: int = _DEEPEST) -> Iterator[Path]:
    """Files in a folder and depth - 1 levels below it, sorted by name.

    Unreadable entries are skipped; symbolic links are followed.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            is_folder, is_file = entry.is_dir(), entry.is_file()
        except OSError:
            continue
        if is_file:
            yield entry
        elif is_folder and depth > 1:
            yield from files_below(entry, depth - 1)


def _size(paths: list[Path]) -> int:
    """Total size of files, 0 if one is missing."""
    try:
        return sum(path.stat().st_size for path in paths)
    except OSError:
        return 0
