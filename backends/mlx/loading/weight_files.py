"""Whether the files of a folder's weights are all there, before any of them is loaded."""

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
"""Where downloads that are under way lie, in the folder itself and as the hub's client does."""


def require_whole(folder: Path) -> int:
    """The number of tensors in a folder of which no part is missing.

    Raises:
        ModelError: it lacks a file, or a file lacks a tensor that the index finds in it.
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
    """The number of tensors in a file that holds all those the index finds in it."""
    if not file.stat().st_size:
        why = "it is empty: a download or a conversion was interrupted"
        raise ModelError(f"{file} is not whole", why, REMEDY)
    held = stored_tensors(file).keys()
    lacking = indexed - held
    if lacking:
        raise ModelError(
            f"{file} does not belong to the rest of the model",
            f"{_INDEX} finds {min(lacking)[:64]!r} in it, which is not there",
            REMEDY,
        )
    return len(held)


def _indexed(folder: Path) -> dict[str, set[str]]:
    """The tensors of each file, as the folder's index has them; nothing where it has no index."""
    index = read_settings(folder / _INDEX)
    found = index.get("weight_map", {})
    damaged = ModelError(f"{folder / _INDEX} is damaged", "it names no files", REMEDY)
    if not isinstance(found, dict):
        raise damaged
    tensors: dict[str, set[str]] = {}
    for tensor, name in cast(dict[str, object], found).items():
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
    """All the files that a conversion into numbered ones makes, by the name of any of them."""
    counts = {int(match[1]) for file in files if (match := _SHARD.fullmatch(file.name))}
    for count in sorted(counts):
        yield from (f"model-{one:05}-of-{count:05}.safetensors" for one in range(1, count + 1))


def _missing(folder: Path, name: str) -> ModelError:
    begun = _begun(folder)
    why = f"{name[:64]} is missing"
    if begun:
        why += f"; the download of {begun} was interrupted"
    return ModelError(f"{folder} is not whole", why, REMEDY)


def _no_weights(folder: Path) -> ModelError:
    others = sorted(one.name for one in folder.glob("*.safetensors"))
    begun = _begun(folder)
    if others:
        why = f"{others[0]} is there, and only {WEIGHT_FILES} are loaded"
        return ModelError(f"there are no weights in {folder}", why, "Use a folder for mlx-lm.")
    why = f"the download of {begun} was interrupted" if begun else f"no {WEIGHT_FILES} is there"
    return ModelError(f"there are no weights in {folder}", why, REMEDY)


def _begun(folder: Path) -> str:
    """The name of a file whose download was begun and not finished, "" where there is none."""
    found = (
        one.name for place in _PLACES for kind in _UNFINISHED for one in (folder / place).glob(kind)
    )
    return min(found, default="")
