"""Identity of what runs a model: with another build, device or thread count, times differ."""

import math
from dataclasses import dataclass
from typing import Self

from backends.base import CacheType, ModelInfo
from backends.engines.backend_names import MLX
from backends.engines.engine_import import importing_engine
from backends.hardware.host import physical_cores


@dataclass(frozen=True, slots=True)
class Runner:
    """Build (as in ModelInfo), device (as the engine names it) and threads.

    streamed_tenths: of the bytes that a token reads, those that come from disk. cache_type: of a
    quantized KV cache, None for any other.
    """

    engine: str
    device: str
    threads: int
    streamed_tenths: int = 0
    cache_type: CacheType | None = None

    @classmethod
    def of(cls, info: ModelInfo) -> Self:
        """Runner of a loaded model."""
        streamed = info.streamed_bytes_per_token / max(info.bytes_read_per_token, 1)
        return cls(
            info.engine, info.device, info.threads, tenths(streamed), quantized(info.cache_type)
        )


def quantized(cache_type: CacheType | None) -> CacheType | None:
    """The type if it makes a pass other work than usual; None for half floats or the engine's."""
    return None if cache_type is CacheType.F16 else cache_type


def tenths(share: float) -> int:
    """Tenths that a share makes; more than none for any share."""
    return math.ceil(10.0 * share)


def expected_runner(backend: str, threads: int | None, gpu_layers: int | None) -> Runner:
    """Runner of a model loaded with a backend and these options.

    Raises:
        ModelError: the engine cannot be started.
    """
    with importing_engine(backend):
        if backend == MLX:
            from backends.mlx import mlx_device

            return Runner(mlx_device.build(), mlx_device.device(), physical_cores())
        from backends.llamacpp import gpu_devices, library

        device = gpu_devices.device(gpu_layers)
        return Runner(library.build(), device, threads or physical_cores())
