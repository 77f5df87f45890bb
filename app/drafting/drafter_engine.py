"""Chooses the engine of a drafter, which may differ from the target's.

The two exchange only tokens and rows of probabilities.
"""

from pathlib import Path

from app.loading.proven_models import ProvenModels
from backends.base import Model, UsageError
from backends.engines.backend_names import MLX
from backends.engines.backend_selection import backend_for
from backends.engines.runner import Runner, expected_runner


def drafter_backend(path: Path, wanted: str) -> str:
    """The wanted backend if it can run this drafter, else one that can.

    Raises:
        ModelError: no backend can, or the file is missing or damaged.
    """
    try:
        return backend_for(path, wanted)
    except UsageError:
        return backend_for(path)


def load_drafter(
    models: ProvenModels, path: Path, wanted: str, threads: int | None, gpu_layers: int | None
) -> Model:
    """Load a drafter with the backend chosen for it.

    Raises:
        ModelError: it cannot be loaded.
    """
    backend = drafter_backend(path, wanted)
    return models.load(path, threads, None if backend == MLX else gpu_layers, backend)


def drafter_runner(path: Path, wanted: str, threads: int | None, gpu_layers: int | None) -> Runner:
    """Engine, device and threads that load_drafter would run a drafter with.

    Raises:
        ModelError: no backend can run it here.
    """
    return expected_runner(drafter_backend(path, wanted), threads, gpu_layers)
