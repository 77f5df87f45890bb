"""Cache keys of measurements of a model: its weights, and the engine that runs them."""

import hashlib
from dataclasses import replace
from pathlib import Path

from backends.base import ModelInfo
from backends.engines.engine_facts import Runner
from models.metadata.identity import fingerprint


def run_key(path: Path, variant: str, runner: Runner) -> str:
    """Filename-safe key of a model, and of what runs it: all that Runner tells.

    Raises:
        OSError: the files of the model cannot be read.
    """
    described = f"{runner.engine} {runner.device} {runner.threads}"
    if runner.streamed_tenths:
        described += f" streams {runner.streamed_tenths} tenths"
    if runner.cache_type:
        described += f" cache {runner.cache_type}"
    digest = hashlib.sha256(described.encode()).hexdigest()[:16]
    return f"{fingerprint(path, variant)}-{digest}"


def loaded_key(info: ModelInfo) -> str:
    """Filename-safe key of a loaded model, as run_key.

    Raises:
        OSError: the files of the model cannot be read.
    """
    return run_key(info.path, info.variant, Runner.of(info))


def recipe_key(info: ModelInfo) -> str:
    """As loaded_key, but one for all shares that stream: a recipe's drafter changes them.

    Raises:
        OSError: the files of the model cannot be read.
    """
    runner = Runner.of(info)
    runner = replace(runner, streamed_tenths=min(runner.streamed_tenths, 1))
    return run_key(info.path, info.variant, runner)
