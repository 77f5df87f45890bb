"""Memory bandwidth of this machine, which bounds its decoding speed."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import OutOfMemoryError
from backends.hardware.host import available_memory
from backends.hardware.nvidia import ask_nvml

_MOST_BYTES = 512_000_000
_USUAL_BYTES = 160_000_000
_LEAST_BYTES = 64_000_000
_TIMES_CACHE = 4
_LAST_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_MOST_PASSES = 10
_FEWEST_PASSES = 2
_SECONDS = 0.35
_TRANSFERS_PER_CLOCK = 2

_Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes of memory read per second, and the source of the figure."""

    bytes_per_second: float
    source: str
    """In plain words, for display."""


def measured_on_cpu(threads: int) -> Bandwidth:
    """Measure read-only streaming: the best of several passes, in about 0.3 s.

    Every thread reads a part of its own and writes nothing, as in decoding; copying gets less. All
    parts together are several times the last-level cache, 160 to 512 MB and at most half of the
    free memory, and each pass reads them whole. Other load on the machine lowers the result.

    Raises:
        OutOfMemoryError: too little memory is free to exclude the caches.
    """
    parts = _parts(threads)
    seconds = min(_pass_seconds(parts))
    total = sum(part.nbytes for part in parts)
    each = f"{parts[0].nbytes / 1e6:.0f} MB"
    readers = (
        f"{threads} threads reading {each} each" if threads > 1 else f"1 thread reading {each}"
    )
    return Bandwidth(total / seconds, f"measured: {readers}")


def of_gpu(name: str) -> Bandwidth | None:
    """Nominal bandwidth of an NVIDIA GPU of this name, None if there is none or it is unknown.

    Programs usually reach about nine tenths of it.
    """

    def nominal(nvml: Any, cards: Sequence[Any]) -> Bandwidth | None:
        card = next((one for one in cards if nvml.nvmlDeviceGetName(one) == name), None)
        if card is None:
            return None
        megahertz = nvml.nvmlDeviceGetMaxClockInfo(card, nvml.NVML_CLOCK_MEM)
        bits = nvml.nvmlDeviceGetMemoryBusWidth(card)
        if not megahertz or not bits:  # as of a GPU that shares the machine's memory
            return None
        bytes_per_second = _TRANSFERS_PER_CLOCK * megahertz * 1e6 * bits / 8
        return Bandwidth(bytes_per_second, f"NVML: memory clock and bus width of {name}")

    return ask_nvml(nominal)


def _last_cache_bytes() -> int:
    try:
        return int(_LAST_CACHE.read_text().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 0


def _parts(threads: int) -> list[_Words]:
    size = min(max(_USUAL_BYTES, _TIMES_CACHE * _last_cache_bytes()), _MOST_BYTES)
    size = min(size, available_memory() // 2)
    if size < _LEAST_BYTES:
        raise OutOfMemoryError(
            "the memory bandwidth cannot be measured",
            f"{_LEAST_BYTES / 1e6:.0f} MB of memory are needed for it",
        )
    words = size // threads // np.dtype(np.uint64).itemsize
    return [np.empty(words, np.uint64) for _ in range(threads)]


def _pass_seconds(parts: list[_Words]) -> list[float]:
    """Seconds of each pass, from its first thread's start to its last thread's end."""
    seconds: list[float] = []
    with ThreadPoolExecutor(len(parts)) as pool:
        # Written first: unwritten pages all map to one page of zeros, and a page is placed in the
        # memory next to the core that first writes it.
        list(pool.map(_write, parts))
        deadline = time.perf_counter() + _SECONDS
        while len(seconds) < _FEWEST_PASSES or (
            len(seconds) < _MOST_PASSES and time.perf_counter() < deadline
        ):
            start = time.perf_counter()
            list(pool.map(_read, parts))
            seconds.append(time.perf_counter() - start)
    return seconds


def _write(words: _Words) -> None:
    words.fill(1)


def _read(words: _Words) -> int:
    """Exclusive or of all words: the cheapest result that depends on every word."""
    return int(np.bitwise_xor.reduce(words))
