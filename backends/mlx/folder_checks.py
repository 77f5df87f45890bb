"""Checks of an MLX folder before anything of it is loaded, and errors of loading in words."""

import contextlib
import re
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from traceback import clear_frames
from typing import Any, cast

import mlx.core as mx
from mlx_lm.utils import MODEL_REMAPPING

from backends.base import ModelError, OutOfMemoryError, SpecchatError
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.head_folders.head_folder import drafter_in_folder
from backends.files.mlx_folder import (
    REMEDY,
    WEIGHT_FILES,
    MlxFolder,
    read_mlx_folder,
    read_settings,
    stored_tensors,
)
from backends.hardware.host import available_memory

_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d{5}-of-(\d{5})\.safetensors")
_UNFINISHED = ("*.incomplete", "*.part", "*.partial", "*.tmp", "*.crdownload", "*.aria2")
_PLACES = (".", ".cache/huggingface/download")
"""Folders of unfinished downloads: the folder itself, and that of the hub's client."""


def require_whole(folder: Path) -> int:
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
    names = (
        file.name
        for place in _PLACES
        for kind in _UNFINISHED
        for file in (folder / place).glob(kind)
    )
    return min(names, default="")


_ALONE = {
    TrainedKind.NEXT_TOKEN_LAYERS: "the next-token layers of a model",
    TrainedKind.ASSISTANT: "an assistant of Gemma 4",
    TrainedKind.EAGLE3: "an EAGLE-3 head",
    TrainedKind.DFLASH: "a DFlash drafter",
    TrainedKind.DSPARK: "a DSpark drafter",
    TrainedKind.LAST_STATE: "a last-state head",
}
_BITS = frozenset({2, 3, 4, 5, 6, 8})
_GROUP_SIZES = frozenset({16, 32, 64, 128})
_COUNTED = re.compile(r"(?:num|\bn_).*(?:layer|expert|head|loop)", re.IGNORECASE)
_MAX_COUNT = 1 << 13
"""Most layers, experts or heads; an architecture creates objects for them before any weights."""

_MAX_DEPTH = 16
_READ_BY_MLX_LM = ("generation_config.json", "hf_quant_config.json")


def checked_folder(path: Path) -> MlxFolder:
    """Settings of a folder with complete weights, a known architecture and enough free memory."""
    if not path.is_dir():
        raise ModelError(f"no folder {path}")
    found = _head_in(path)
    if found is not None and found.is_alone:
        raise ModelError(
            f"{path.name} is no model",
            f"it is {_ALONE[found.kind]}, which drafts for another model and cannot answer alone",
            f"Name it with its model, as in: --draft {found.kind.word}:{path}",
        )
    tensors = require_whole(path)
    folder = read_mlx_folder(path)
    for name in _READ_BY_MLX_LM:
        read_settings(path / name)
    _require_architecture(path, folder.written)
    _require_quantization(path, folder.written)
    for name, count in _counts(folder.written):
        if count > _MAX_COUNT:
            why = f"{name[:40]} is {count:,}"
            raise ModelError(f"{path / 'config.json'} is damaged", why, REMEDY)
    layers = folder.count("num_hidden_layers")
    if layers > tensors:  # all would be created before the weights are read
        why = f"config.json has {layers:,} layers, and the weights {tensors:,} tensors"
        raise ModelError(f"cannot load {path}", why, REMEDY)
    require_memory(path, folder.weight_bytes)
    return folder


def _head_in(path: Path) -> TrainedDrafter | None:
    """What a folder brings for drafting; None also if files of other programs are damaged."""
    with contextlib.suppress(ModelError):
        return drafter_in_folder(path)
    return None


def require_memory(path: Path, weight_bytes: int) -> None:
    free = available_memory()
    if weight_bytes > free:
        raise OutOfMemoryError(
            f"{path.name} needs {weight_bytes / 1e9:.1f} GB of memory for its weights",
            f"{free / 1e9:.1f} GB are free",
            "Choose a smaller model or quantization, or free some memory.",
        )


def _require_architecture(path: Path, config: dict[str, Any]) -> None:
    if config.get("model_file") is not None:
        raise ModelError(
            f"cannot run {path}",
            "it ships program code, which is never run",
            "Choose a model of an architecture that mlx-lm supports.",
        )
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise ModelError(f"{path / 'config.json'} is damaged", "it names no architecture", REMEDY)
    if not _is_known(MODEL_REMAPPING.get(kind, kind)):
        raise ModelError(
            f"cannot run {path}",
            f"this version of mlx-lm does not support the architecture {kind[:40]!r}",
            "Choose another model, or a newer specchat.",
        )


def _is_known(name: str) -> bool:
    """Whether mlx-lm has an architecture of this name; it is imported by name."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        return False
    module = f"mlx_lm.models.{name}"
    return find_spec(module) is not None and hasattr(import_module(module), "Model")


def _require_quantization(path: Path, config: dict[str, Any]) -> None:
    for name in ("quantization", "quantization_config"):
        settings = config.get(name)
        if settings is not None and not isinstance(settings, dict):
            raise ModelError(f"{path / 'config.json'} is damaged", f"{name} is no list of settings")
    settings = config.get("quantization")
    if settings is None:
        return
    bits, group_size = settings.get("bits"), settings.get("group_size")
    are_whole = type(bits) is type(group_size) is int
    if not are_whole or bits not in _BITS or group_size not in _GROUP_SIZES:
        raise ModelError(
            f"cannot run {path}",
            f"MLX has no weights of {str(bits)[:20]} bits in groups of {str(group_size)[:20]}",
            "Choose another conversion of the model.",
        )


def _counts(settings: object, depth: int = 0) -> Iterator[tuple[str, int]]:
    """Counts of layers, experts and heads in all parts of the settings."""
    if not isinstance(settings, dict) or depth > _MAX_DEPTH:
        return
    for name, value in cast("dict[str, object]", settings).items():
        if type(value) is int and _COUNTED.search(name):
            yield name, value
        yield from _counts(value, depth + 1)


_MOST_CHARACTERS = 200
_OUT_OF_MEMORY = re.compile(r"alloc|out of memory|insufficient memory", re.IGNORECASE)


@contextlib.contextmanager
def loading(path: Path) -> Generator[None]:
    """Free what an exception within the block holds, and turn it into a ModelError if it is none.

    Code of an architecture may raise anything.
    """
    try:
        yield
        return
    except Exception as error:
        refusal = error
        if not isinstance(error, SpecchatError):
            refusal = load_error(path, error)
            refusal.__cause__ = error
        clear_frames(error.__traceback__)  # they hold the arrays loaded so far
    mx.clear_cache()
    raise refusal


def load_error(path: Path, error: Exception) -> ModelError:
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error))
    ):
        return OutOfMemoryError(
            f"there is no memory for {path.name}",
            _shortened(str(error)),
            "Choose a smaller model or quantization, or free some memory.",
        )
    return ModelError(f"cannot load {path}", _reason(error), REMEDY)


def _reason(error: Exception) -> str:
    text = _shortened(str(error))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}"
    if isinstance(error, KeyError):
        return f"its files lack {text}"
    return f"its files are inconsistent ({text or type(error).__name__})"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"
