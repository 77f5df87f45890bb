"""What runs a model: another build, device or number of threads takes other times."""

from dataclasses import dataclass
from typing import Self

from backends.base import ModelInfo
from backends.choice import MLX, started
from backends.device import physical_cores


@dataclass(frozen=True, slots=True)
class Runner:
    """engine: its build, as ModelInfo has it; device in the engine's words."""

    engine: str
    device: str
    threads: int

    @classmethod
    def of(cls, info: ModelInfo) -> Self:
        """What runs a loaded model."""
        return cls(info.engine, info.device, info.threads)


def expected_runner(backend: str, threads: int | None, gpu_layers: int | None) -> Runner:
    """What will run a model that is loaded with a backend and such options.

    Raises:
        ModelError: the engine cannot be started.
    """
    with started(backend):
        if backend == MLX:
            from backends.mlx import library

            return Runner(library.build(), library.device(), physical_cores())
        from backends.llamacpp import library

        return Runner(library.build(), library.device(gpu_layers), threads or physical_cores())
