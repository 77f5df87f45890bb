"""How fast the device that MLX runs on reads memory."""

import time

import mlx.core as mx

from backends.bandwidth import Bandwidth
from backends.device import available_memory
from backends.mlx.library import has_gpu

_BYTES = 1 << 30
"""Far more than any cache; half of the free memory where that is less."""

_LEAST_BYTES = 64_000_000
_PASSES = 10
_WORD = 4


def measured_on_device(size: int = _BYTES) -> Bandwidth | None:
    """What a read-only sum over size bytes achieves, the best of several passes.

    None where too little memory is free to tell it from the caches.
    """
    size = min(size, available_memory() // 2)
    if size < _LEAST_BYTES:
        return None
    words = mx.ones((size // _WORD,), dtype=mx.uint32)
    mx.eval(words)
    seconds = min(_seconds(words) for _ in range(_PASSES))
    device = "the GPU" if has_gpu() else "MLX on the processor"
    found = Bandwidth(words.nbytes / seconds, f"measured: {device} reading {size / 1e6:.0f} MB")
    del words
    mx.clear_cache()
    return found


def _seconds(words: mx.array) -> float:
    start = time.perf_counter()
    mx.eval(mx.sum(words))
    return time.perf_counter() - start
