"""What a process holds, for tests that nothing leaks."""

import contextlib
import ctypes
import gc
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import psutil

ALLOCATOR = "PYTHONMALLOC"
"""Variable of Python's allocator; its own takes memory by the megabyte: set it to malloc."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds. memory: bytes that are its own alone, files that it maps left out."""

    memory: int
    files: int
    threads: int
    children: int

    @classmethod
    def now(cls) -> Self:
        """At this moment, without what Python and the C library only keep for later."""
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
            ctypes.CDLL(None).malloc_trim(0)
        process = psutil.Process()
        files = process.num_fds() if hasattr(process, "num_fds") else len(process.open_files())
        children = len(process.children(recursive=True))
        return cls(_own_memory(process), files, process.num_threads(), children)

    def __str__(self) -> str:
        return (
            f"{self.memory / 1e6:.2f} MB, {self.files} files, {self.threads} threads, "
            f"{self.children} children"
        )


def _own_memory(process: psutil.Process) -> int:
    """Bytes that no file backs, where the system tells them apart.

    Pages of libraries are a process's alone only while no child maps them: 5 MB of a server here.
    """
    if not sys.platform.startswith("linux"):
        return process.memory_full_info().uss
    return sum(area.anonymous for area in process.memory_maps())


def middle(readings: Iterable[Held]) -> Held:
    """The median of memory, and of the rest what most readings tell."""
    readings = list(readings)
    return Held(
        statistics.median_low(one.memory for one in readings),
        statistics.mode(one.files for one in readings),
        statistics.mode(one.threads for one in readings),
        statistics.mode(one.children for one in readings),
    )


def grown(before: Held, after: Held, most_growth: float) -> list[str]:
    """What a process holds more of than before. most_growth: of its memory, as a share."""
    growth = after.memory / before.memory - 1
    faults = [f"memory grew by {100 * growth:.2f} %"] if growth >= most_growth else []
    return faults + [
        f"{name}: {getattr(before, name)} before, {getattr(after, name)} after"
        for name in ("files", "threads", "children")
        if getattr(after, name) > getattr(before, name)
    ]
