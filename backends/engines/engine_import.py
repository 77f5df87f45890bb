"""Importing engines when they are first needed, and the commands that install them."""

from collections.abc import Generator
from contextlib import contextmanager

from backends.base import ModelError
from backends.engines.backend_names import MLX
from backends.hardware.machine import Machine, this_machine

BUILD_CUDA = "specchat build cuda"
REBUILD_LLAMACPP = "uv sync --reinstall-package llama-cpp-python"


def mlx_command(machine: Machine) -> str:
    """Command that installs MLX."""
    return "uv sync" if machine.is_apple_silicon else "uv sync --extra mlx-cpu"


@contextmanager
def importing_engine(backend: str) -> Generator[None]:
    """Report an engine that fails to import or start within the block.

    Raises:
        ModelError: in place of the engine's own exception.
    """
    try:
        yield
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        name, command = "llama.cpp", REBUILD_LLAMACPP
        if backend == MLX:
            name = "MLX"
            command = f"{mlx_command(this_machine())} --reinstall-package mlx"
        remedy = f"Install it again: {command}"
        raise ModelError(f"{name} cannot be started here", str(error), remedy) from error
