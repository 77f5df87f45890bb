"""Memory bandwidth of a device, measured once and cached on disk."""

import hashlib
import math
from collections.abc import Callable
from typing import Any

from app.paths import Paths
from backends.base import ModelInfo, OutOfMemoryError
from backends.engines.backend_names import LLAMACPP, MLX
from backends.engines.engine_resources import bandwidth_of_mlx, gpus
from backends.hardware.bandwidth import Bandwidth, measured_on_cpu, of_gpu
from backends.hardware.host import processor_name
from models.json_file import read_object, write_object


def memory_bandwidth(info: ModelInfo, paths: Paths) -> Bandwidth | None:
    """Bandwidth of the device that runs a model; None if it cannot be measured, or for several."""
    if info.gpu_layers is not None:
        return None
    if info.device.startswith("GPU"):
        return mlx_bandwidth(paths) if info.backend == MLX else gpu_bandwidth()
    return processor_bandwidth(info.threads, paths)


def processor_bandwidth(threads: int, paths: Paths, *, again: bool = False) -> Bandwidth | None:
    """Bandwidth of the processor with this many threads, None if memory is too short to measure."""

    def measure() -> Bandwidth | None:
        try:
            return measured_on_cpu(threads)
        except OutOfMemoryError:
            return None

    return _cached(f"{processor_name()} {threads}", measure, paths, again=again)


def gpu_bandwidth() -> Bandwidth | None:
    """Nominal bandwidth of the GPUs that llama.cpp uses; None if unknown, or where they differ."""
    names = {gpu.name for gpu in gpus(LLAMACPP)}
    return of_gpu(*names) if len(names) == 1 else None


def mlx_bandwidth(paths: Paths, *, again: bool = False) -> Bandwidth | None:
    """Bandwidth of MLX's device, None if memory is too short to measure."""
    return _cached(f"{processor_name()} {MLX}", bandwidth_of_mlx, paths, again=again)


def _cached(
    device: str, measure: Callable[[], Bandwidth | None], paths: Paths, *, again: bool
) -> Bandwidth | None:
    """The highest bandwidth measured on a device; measures it the first time, or again.

    A measurement can only be too low, as other programs use memory too.
    """
    name = hashlib.sha256(device.encode()).hexdigest()[:16]
    path = paths.bandwidth / f"{name}.json"
    cached = _parsed(read_object(path))
    if cached is not None and not again:
        return cached
    measured = measure()
    if measured is None or (cached and cached.bytes_per_second >= measured.bytes_per_second):
        return cached
    write_object(path, {"bytes_per_second": measured.bytes_per_second, "source": measured.source})
    return measured


def _parsed(entry: dict[str, Any]) -> Bandwidth | None:
    rate, source = entry.get("bytes_per_second"), entry.get("source")
    if isinstance(rate, float) and 0.0 < rate < math.inf and isinstance(source, str):
        return Bandwidth(rate, source)
    return None
