"""Records models that ran without a crash, until one of their files changes."""

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from backends.base import ModelError
from backends.engines.runner import expected_runner, quantized
from backends.proof.proof_process import Trial
from models.json_file import change_object, read_object
from models.metadata.content_hash import stamp
from models.metadata.model_files import model_files
from models.metadata.trained_drafters import drafter_of

SCHEMA = 1
_SOME_LAYERS = re.compile(r"\d+ layers$")
"""How many fit on a GPU changes with what other programs take of it; one proof holds for all."""

MOST = 1000
"""Most proofs kept; a tuning adds a few dozen."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """The record of proofs in a file; damaged entries are ignored."""

    file: Path

    def hold(self, key: str) -> bool:
        """Whether a proof of a model is recorded."""
        return key in _keys(read_object(self.file))

    def add(self, key: str) -> None:
        """Record a proof; the oldest are dropped."""

        def added(before: dict[str, Any]) -> dict[str, Any]:
            keys = [other for other in _keys(before) if other != key]
            return {"schema": SCHEMA, "proven": [*keys, key][-MOST:]}

        change_object(self.file, added)


def proof_key(trial: Trial) -> str:
    """Identity of a model's files and of the engine, device and options that run them.

    Raises:
        ModelError: a file is missing, or the engine cannot be started.
    """
    try:
        heads = _files(trial.head) if trial.head else []
        stamps = [stamp(file) for file in (*_files(trial.path), *heads)]
    except OSError as error:
        raise ModelError(f"cannot read {trial.proven}", error.strerror or str(error)) from error
    runner = expected_runner(trial.backend, trial.threads, trial.gpu_layers)
    device = _SOME_LAYERS.sub("some layers", runner.device)
    settings = (runner.engine, device, trial.experts, trial.vocabulary_only)
    settings += ("streams",) if trial.streams else ()
    settings += (f"cache {one}",) if (one := quantized(trial.cache_type)) else ()
    settings += ("own head",) if _brings_head(trial) else ()
    identity = os.fsencode("\n".join(map(str, (*stamps, *settings))))
    return hashlib.sha256(identity).hexdigest()[:32]


def _brings_head(trial: Trial) -> bool:
    """Whether the proof of a model runs its own next-token layers too."""
    if trial.vocabulary_only or trial.streams:
        return False
    with suppress(ModelError):  # the proof tells what is wrong
        found = drafter_of(trial.path)
        return found is not None and not found.is_alone
    return False


def _files(path: Path) -> list[Path]:
    """All files that an engine may read."""
    if not path.is_dir():
        return model_files(path)
    return sorted(file for file in path.iterdir() if file.is_file())


def _keys(record: dict[str, Any]) -> list[str]:
    keys = record.get("proven") if record.get("schema") == SCHEMA else None
    return [str(key) for key in cast("list[Any]", keys)] if isinstance(keys, list) else []
