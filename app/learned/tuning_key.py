"""Cache key of tuning results."""

from app.learned.run_key import run_key
from backends.base import ModelInfo
from backends.engines.runner import Runner


def tuning_key(info: ModelInfo) -> str:
    """Return the key of a model, its engine, device and number of threads.

    Raises:
        OSError: its files cannot be read.
    """
    return run_key(info.path, info.variant, Runner.of(info))
