"""Finding all models on this machine in their present places."""

import difflib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from models.model_names import quantization_of, stem
from models.stores.hub_snapshots import hub_models
from models.stores.installed_model import Installed, Origin, gguf_models, mlx_folder_size
from models.stores.ollama import ollama_models
from models.stores.store_folders import Places

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


def nearest_names(name: str, models: list[Installed]) -> list[str]:
    """Up to three names of models similar to an unknown one, the nearest first."""
    names = {model.name.lower(): model.name for model in models}
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.4)
    return [names[lowered] for lowered in near]


def _all(places: Places) -> Iterator[Installed]:
    yield from _plain(places.models, Origin.MODELS_FOLDER, _OWN_DEPTH)
    yield from hub_models(places.hub_cache)
    for folder in places.lm_studio:
        yield from _lm_studio(folder)
    for folder in places.llama_cpp:
        yield from _plain(folder, Origin.LLAMA_CPP)
    for folder in places.ollama:
        yield from ollama_models(folder)


def _plain(folder: Path, origin: Origin, depth: int = 1) -> Iterator[Installed]:
    """GGUF files in a folder and depth - 1 levels below, named by file, and MLX folders."""
    for path, size in gguf_models(folder, depth):
        yield Installed(stem(path.name), path, size, origin)
    yield from _mlx(folder, "*", origin)


def _lm_studio(folder: Path) -> Iterator[Installed]:
    """Models in folders publisher/model."""
    for path, size in gguf_models(folder, depth=3):
        owner = path.parent.relative_to(folder).as_posix()
        label = quantization_of(path.name) or path.name
        yield Installed(f"{owner}:{label}", path, size, Origin.LM_STUDIO)
    yield from _mlx(folder, "*/*", Origin.LM_STUDIO)


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
