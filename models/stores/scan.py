"""Finds the models on this machine: in our folder, and in those of other programs."""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, cast

from backends.files.gguf_header import parts
from models.bounded_files import read_object
from models.hub.progress import hub_cache
from models.names import is_model_file, part, quantization_of, stem


@dataclass(frozen=True, slots=True)
class Places:
    models: Path
    hub_cache: Path
    lm_studio: tuple[Path, ...]
    llama_cpp: tuple[Path, ...]
    ollama: tuple[Path, ...]

    @classmethod
    def of_environment(cls, models: Path) -> Self:
        """Default folders, or those set in the programs' environment variables."""
        home = Path.home()
        caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        caches = home / "Library/Caches" if sys.platform == "darwin" else caches
        return cls(
            models,
            hub_cache(),
            (home / ".lmstudio/models", home / ".cache/lm-studio/models"),
            _named("LLAMA_CACHE") or (caches / "llama.cpp",),
            _named("OLLAMA_MODELS")
            or (home / ".ollama/models", Path("/usr/share/ollama/.ollama/models")),
        )


def _named(variable: str) -> tuple[Path, ...]:
    value = os.environ.get(variable)
    return (Path(value).expanduser(),) if value else ()


_DEEPEST = 4


class Origin(StrEnum):
    BUNDLED = "bundled"
    MODELS_FOLDER = "models folder"
    HUB_CACHE = "hub cache"
    LM_STUDIO = "LM Studio"
    LLAMA_CPP = "llama.cpp"
    OLLAMA = "Ollama"


@dataclass(frozen=True, slots=True)
class Installed:
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
    try:
        return sum(path.stat().st_size for path in paths)
    except OSError:
        return 0


_PREFIX = "models--"


def hub_models(cache: Path) -> Iterator[Installed]:
    """GGUF models and MLX folders of all snapshots, the latest snapshots first."""
    for folder in sorted(cache.glob(f"{_PREFIX}*/snapshots")):
        repository = folder.parent.name.removeprefix(_PREFIX).replace("--", "/", 1)
        for snapshot in _latest_first(folder):
            yield from _in_snapshot(snapshot, repository)


def snapshots(cache: Path, repository: str) -> list[Path]:
    return _latest_first(cache / (_PREFIX + repository.replace("/", "--")) / "snapshots")


def repository_of(snapshot: Path) -> str:
    """Repository of a snapshot's folder, by the names above it; empty for another path."""
    above = snapshot.parent
    if above.name != "snapshots" or not above.parent.name.startswith(_PREFIX):
        return ""
    return above.parent.name.removeprefix(_PREFIX).replace("--", "/", 1)


def repository_file(path: Path, cache: Path) -> tuple[str, str, str] | None:
    """Repository, commit and file name of a path in the cache, None for any other path."""
    if not path.is_relative_to(cache):
        return None
    parts = path.relative_to(cache).parts
    if len(parts) < 4 or not parts[0].startswith(_PREFIX) or parts[1] != "snapshots":
        return None
    repository = parts[0].removeprefix(_PREFIX).replace("--", "/", 1)
    return repository, parts[2], "/".join(parts[3:])


def _in_snapshot(snapshot: Path, repository: str) -> Iterator[Installed]:
    for path, size in gguf_models(snapshot, depth=2):
        label = quantization_of(path.name) or path.name
        yield Installed(f"{repository}:{label}", path, size, Origin.HUB_CACHE)
    size = mlx_folder_size(snapshot, repository)
    if size is not None:
        yield Installed(repository, snapshot, size, Origin.HUB_CACHE)


def _latest_first(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []


_MODEL = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_REGISTRY, _LIBRARY = "registry.ollama.ai", "library"


def ollama_models(store: Path) -> Iterator[Installed]:
    manifests = store / "manifests"
    for manifest in files_below(manifests):
        layers = read_object(manifest).get("layers")
        for layer in cast("list[object]", layers) if isinstance(layers, list) else []:
            blob = _blob(layer, store)
            if blob is not None:
                name = _name(manifest.relative_to(manifests))
                yield Installed(name, *blob, Origin.OLLAMA)


def _blob(layer: object, store: Path) -> tuple[Path, int] | None:
    known = cast("dict[str, Any]", layer) if isinstance(layer, dict) else {}
    digest = _DIGEST.fullmatch(str(known.get("digest")))
    if known.get("mediaType") != _MODEL or not digest:
        return None
    blob = store / "blobs" / f"sha256-{digest[1]}"
    try:
        with blob.open("rb") as file:
            return (blob, blob.stat().st_size) if file.read(4) == b"GGUF" else None
    except OSError:
        return None


def _name(manifest: Path) -> str:
    """Ollama's name of a model: defaults omitted, the tag after a colon."""
    *owners, model, tag = manifest.parts
    usual = [_REGISTRY, _LIBRARY]
    while owners and usual and owners[0] == usual[0]:
        owners.pop(0)
        usual.pop(0)
    return f"{'/'.join([*owners, model])}:{tag}"


_OWN_DEPTH = 4
"""Levels: the models folder, ORG/NAME below it, and a folder of parts of a large model."""

_SUFFIX = {
    Origin.BUNDLED: "bundled",
    Origin.MODELS_FOLDER: "folder",
    Origin.HUB_CACHE: "hub",
    Origin.LM_STUDIO: "lmstudio",
    Origin.LLAMA_CPP: "llamacpp",
    Origin.OLLAMA: "ollama",
}


def installed_models(places: Places) -> list[Installed]:
    """All models that can be run, each file once, with names unique regardless of case.

    To a duplicate name its origin is added, then a number.
    """
    names: set[str] = set()
    files: set[Path] = set()
    unique: list[Installed] = []
    for model in _all(places):
        file = model.path.resolve()
        if file not in files:
            files.add(file)
            name = _unused(model, names)
            names.add(name.lower())
            unique.append(replace(model, name=name))
    return unique


def _all(places: Places) -> Iterator[Installed]:
    yield from _plain(places.models, Origin.MODELS_FOLDER, _OWN_DEPTH)
    yield from hub_models(places.hub_cache)
    for folder in places.lm_studio:
        for path, size in gguf_models(folder, depth=3):
            owner = path.parent.relative_to(folder).as_posix()
            name = f"{owner}:{quantization_of(path.name) or path.name}"
            yield Installed(name, path, size, Origin.LM_STUDIO)
        yield from _mlx(folder, "*/*", Origin.LM_STUDIO)
    for folder in places.llama_cpp:
        yield from _plain(folder, Origin.LLAMA_CPP)
    for folder in places.ollama:
        yield from ollama_models(folder)


def _plain(folder: Path, origin: Origin, depth: int = 1) -> Iterator[Installed]:
    """GGUF files in a folder and depth - 1 levels below, named by file, and MLX folders."""
    for path, size in gguf_models(folder, depth):
        yield Installed(stem(path.name), path, size, origin)
    yield from _mlx(folder, "*", origin)


def _mlx(folder: Path, form: str, origin: Origin) -> Iterator[Installed]:
    for config in sorted(folder.glob(f"{form}/config.json")):
        name = config.parent.relative_to(folder).as_posix()
        size = mlx_folder_size(config.parent, name)
        if size is not None:
            yield Installed(name, config.parent, size, origin)


def _unused(model: Installed, names: set[str]) -> str:
    name, number = model.name, 1
    while name.lower() in names:
        again = f"-{number}" if number > 1 else ""
        name = f"{model.name}@{_SUFFIX[model.origin]}{again}"
        number += 1
    return name
