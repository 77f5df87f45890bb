"""By what the results of tuning are told apart."""

from app.run_key import run_key
from backends.base import ModelInfo
from backends.engines.runner import Runner


def tuning_key(info: ModelInfo) -> str:
    """Of a model as an engine runs it on a device with so many threads.

    Raises:
        OSError: its files cannot be read.
    """
    return run_key(info.path, info.variant, Runner.of(info))
