"""Trained drafters that a model's file or folder brings, or that lie beside it."""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from backends.base import ModelError
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.files import gguf_drafter
from backends.files.gguf_drafter import TrainedDrafter, drafter_in
from backends.files.gguf_header import parts, read_header, read_model
from backends.files.head_folders import head_folder as folder_drafter
from backends.files.head_folders.head_folder import drafter_in_folder
from backends.files.mlx_folder import is_mlx_folder
from models.metadata.identity import stored_bytes
from models.metadata.memory_bill import mlx_settings

_FOLDERS = (".", "MTP")
"""Where publishers put drafters, from the model's own folder."""

_MOST_FILES = 64
"""Most files that are read in a folder, so that a folder full of models delays nothing."""

_MOST_PARTS = 4
"""Most weight files of a head: published ones have one or two, large models many, with a header
each."""

_MOST_KEPT = 256
"""Folders whose drafter is remembered."""


_SPARE = 1 << 20
"""Bytes by which a drafter may be larger than its model, which only tiny ones are; larger files are
models themselves, and not read."""


@dataclass(frozen=True, slots=True)
class FoundDrafter:
    """A trained drafter, and its file or folder; misfit: why it cannot draft for the model."""

    path: Path
    drafter: TrainedDrafter
    misfit: str = ""


def expected_backend(path: Path) -> str:
    """The backend of a model that is not loaded: a folder is run by MLX alone."""
    return MLX if path.is_dir() else LLAMACPP


def drafter_of(path: Path) -> TrainedDrafter | None:
    """The trained drafter in a GGUF file with all its parts, or in a folder of safetensors.

    None if it brings none.

    Raises:
        ModelError: it is missing or damaged.
    """
    if path.is_dir():
        return _in_folder(path, _stamps(path))
    return drafter_in(*read_model(path))


@functools.lru_cache(maxsize=_MOST_KEPT)
def _in_folder(path: Path, _stamps: tuple[object, ...]) -> TrainedDrafter | None:
    """Headers of all tensors are read once, until a file changes."""
    return drafter_in_folder(path)


def _stamps(path: Path) -> tuple[object, ...]:
    """What changes with the content of a folder."""
    try:
        found = [(file.name, file.stat()) for file in sorted(path.iterdir()) if file.is_file()]
    except OSError as error:
        raise ModelError(f"cannot read {path}", error.strerror or str(error)) from error
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def drafter_alone(path: Path) -> TrainedDrafter | None:
    """The trained drafter that a file or folder is; None for a model, and for what cannot be read.

    A folder's files that are for other programs do not keep its model from being used.
    """
    with contextlib.suppress(ModelError):
        found = drafter_of(path)
        return found if found is not None and found.is_alone else None
    return None


def misfit(drafter: TrainedDrafter, target: Path, backend: str = LLAMACPP) -> str:
    """Why a drafter cannot draft for a model, as far as headers tell; empty if it may.

    backend: the one that runs the model.

    Raises:
        ModelError: the model is missing or damaged.
    """
    if backend == MLX:
        return folder_drafter.misfit(drafter, mlx_settings(target))
    return gguf_drafter.misfit(drafter, read_header(parts(target)[0]))


def found_for(path: Path, backend: str | None = None) -> list[FoundDrafter]:
    """Trained drafters for a model: its own layers, then those beside it.

    backend: the one that runs the model, by default the expected one; only what it can read is
    looked for. What is damaged, or is a model itself, is left out.

    Raises:
        ModelError: the model itself is missing or damaged.
    """
    backend = backend or expected_backend(path)
    own = None
    with contextlib.suppress(ModelError) if path.is_dir() else contextlib.nullcontext():
        own = drafter_of(path)  # files of other programs in a folder may be damaged
    if own is not None and own.is_alone:
        return []
    mine = [FoundDrafter(path, own, own.fault)] if own else []
    return [*mine, *_beside(path, backend)]


def _beside(path: Path, backend: str) -> Iterator[FoundDrafter]:
    largest = stored_bytes(path) + _SPARE
    for place in _places(path, backend):
        with contextlib.suppress(ModelError, OSError):
            drafter = drafter_of(place) if stored_bytes(place) <= largest else None
            if drafter is not None and drafter.is_alone:
                yield FoundDrafter(place, drafter, misfit(drafter, path, backend))


def _places(path: Path, backend: str) -> Iterator[Path]:
    """Files, or folders, in which a drafter for a model may be."""
    if backend == MLX:
        inside = [path] if path.is_dir() else []
        for folder in (*inside, path.parent):
            near = (each for each in _listed(folder) if each != path and is_mlx_folder(each))
            small = (one for one in near if len(list(one.glob("*.safetensors"))) <= _MOST_PARTS)
            yield from islice(small, _MOST_FILES)
        return
    own = set(parts(path))
    for folder in _FOLDERS:
        files = sorted((path.parent / folder).glob("*.gguf"))
        yield from [file for file in files if file not in own][:_MOST_FILES]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return []
