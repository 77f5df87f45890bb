"""The MLX build, the device it runs on, and the memory that processor and GPU share."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false

import time
from importlib import metadata

import mlx.core as mx

from backends.base import UsageError
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.host import available_memory, processor_name

_READ_BYTES = 1 << 30
"""Far more than any cache."""

_LEAST_BYTES = 64_000_000
_PASSES = 10
_WORD_BYTES = 4


def build() -> str:
    """Versions that run a model: others may differ in speed and rounding."""
    return f"MLX {metadata.version('mlx')}, mlx-lm {metadata.version('mlx-lm')}"


def has_gpu() -> bool:
    """Whether models run on a GPU: Apple's, or with the extra mlx-cuda NVIDIA's."""
    return mx.default_device() == mx.gpu and (mx.metal.is_available() or mx.cuda.is_available())


def device() -> str:
    if not has_gpu():
        return f"CPU: {processor_name()}"
    name = mx.device_info().get("device_name") if mx.cuda.is_available() else None
    return f"GPU: {name or processor_name()}"


def check_gpu_layers(gpu_layers: int | None) -> None:
    """Refuse a number of GPU layers: MLX runs all of them on the GPU, or none."""
    if gpu_layers is not None:
        raise UsageError(
            "--gpu-layers has no effect with MLX",
            "it runs every layer on the GPU if there is one",
        )


def working_set() -> int | None:
    """Most bytes the system recommends the GPU to use; None without Apple's GPU."""
    if not has_gpu():
        return None
    size = mx.device_info().get("max_recommended_working_set_size")
    return int(size) if size else None


def free_memory() -> int:
    """Bytes free for models, also of other programs: on the machine, or on a GPU with its own.

    Apple's GPU takes no more of the machine's than its working set. What MLX keeps of freed arrays
    is free.
    """
    own = mx.device_info().get("free_memory") if has_gpu() and mx.cuda.is_available() else None
    free = mx.get_cache_memory() + (available_memory() if own is None else int(own))
    most = working_set()
    return free if most is None else min(free, max(most - mx.get_active_memory(), 0))


def raise_wired_limit() -> None:
    """Wire weights up to the working set, as mlx-lm does; paged out, they are slow."""
    recommended = working_set()
    if recommended is not None:
        mx.set_wired_limit(recommended)


def measured_on_device(size: int = _READ_BYTES) -> Bandwidth | None:
    """Memory bandwidth of the device: a sum over size bytes, the best of several passes.

    At most half of the free memory is read. None if that is too little to exclude the caches.
    """
    size = min(size, available_memory() // 2)
    if size < _LEAST_BYTES:
        return None
    words = mx.ones((size // _WORD_BYTES,), dtype=mx.uint32)
    mx.eval(words)
    seconds = min(_read_seconds(words) for _ in range(_PASSES))
    reader = "the GPU" if has_gpu() else "MLX on the processor"
    bandwidth = Bandwidth(words.nbytes / seconds, f"measured: {reader} reading {size / 1e6:.0f} MB")
    del words
    mx.clear_cache()
    return bandwidth


def _read_seconds(words: mx.array) -> float:
    start = time.perf_counter()
    mx.eval(mx.sum(words))
    return time.perf_counter() - start
