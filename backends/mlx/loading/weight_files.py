"""Checking that all weight files of a folder are present, before any is loaded."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import cast

from backends.base import ModelError
from backends.files.mlx_folder import REMEDY, WEIGHT_FILES, read_settings
from backends.files.safetensors_header import stored_tensors

_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d{5}-of-(\d{5})\.safetensors")
_UNFINISHED = ("*.incomplete", "*.part", "*.partial", "*.tmp", "*.crdownload", "*.aria2")
_PLACES = (".", ".cache/huggingface/download")
"""Folders of unfinished downloads: the folder itself, and that of the hub's client."""


def require_whole(folder: Path) -> int:
    """Count the tensors of a folder, none of whose files may be missing.

    Raises:
        ModelError: a file is missing, or lacks a tensor that the index lists for it.
    """
    if not (folder / "config.json").is_file():
        raise _missing(folder, "config.json")
    tensors = _indexed(folder)
    files = sorted(folder.glob(WEIGHT_FILES))
    for name in tensors or [*_numbered(files), *(file.name for file in files)]:
        if not (folder / name).is_file():
            raise _missing(folder, name)
    if not files:
        raise _no_weights(folder)
    return sum(_checked(file, tensors.get(file.name, set())) for file in files)


def _checked(file: Path, indexed: set[str]) -> int:
    """Count the tensors of a file, which must include those the index lists for it."""
    if not file.stat().st_size:
        why = "it is empty: a download or a conversion was interrupted"
        raise ModelError(f"{file} is incomplete", why, REMEDY)
    held = stored_tensors(file).keys()
    lacking = indexed - held
    if lacking:
        raise ModelError(
            f"{file} does not belong to the rest of the model",
            f"{_INDEX} lists {min(lacking)[:64]!r} in it, which is missing",
            REMEDY,
        )
    return len(held)


def _indexed(folder: Path) -> dict[str, set[str]]:
    """Tensors by file from the folder's index, {} without an index."""
    index = read_settings(folder / _INDEX)
    weight_map = index.get("weight_map", {})
    damaged = ModelError(f"{folder / _INDEX} is damaged", "it lists no files", REMEDY)
    if not isinstance(weight_map, dict):
        raise damaged
    tensors: dict[str, set[str]] = {}
    for tensor, name in cast("dict[str, object]", weight_map).items():
        if not isinstance(name, str) or Path(name).name != name:
            raise damaged
        if not fnmatch(name, WEIGHT_FILES):
            raise ModelError(
                f"cannot run {folder}",
                f"its weights are in {name[:64]!r}, and only {WEIGHT_FILES} are loaded",
                "Choose a conversion made for mlx-lm.",
            )
        tensors.setdefault(name, set()).add(tensor)
    return tensors


def _numbered(files: list[Path]) -> Iterator[str]:
    """Names of all shards, from the numbers in the name of any."""
    counts = {int(match[1]) for file in files if (match := _SHARD.fullmatch(file.name))}
    for count in sorted(counts):
        yield from (f"model-{index:05}-of-{count:05}.safetensors" for index in range(1, count + 1))


def _missing(folder: Path, name: str) -> ModelError:
    begun = _begun(folder)
    why = f"{name[:64]} is missing"
    if begun:
        why += f"; the download of {begun} was interrupted"
    return ModelError(f"{folder} is incomplete", why, REMEDY)


def _no_weights(folder: Path) -> ModelError:
    others = sorted(file.name for file in folder.glob("*.safetensors"))
    begun = _begun(folder)
    if others:
        why = f"{others[0]} is present, and only {WEIGHT_FILES} are loaded"
        return ModelError(f"there are no weights in {folder}", why, "Use a folder for mlx-lm.")
    why = f"the download of {begun} was interrupted" if begun else f"no {WEIGHT_FILES} is present"
    return ModelError(f"there are no weights in {folder}", why, REMEDY)


def _begun(folder: Path) -> str:
    """Name of an unfinished download, "" if there is none."""
    names = (
        file.name
        for place in _PLACES
        for kind in _UNFINISHED
        for file in (folder / place).glob(kind)
    )
    return min(names, default="")
