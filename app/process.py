"""What a process asks of the system: signals, memory that it gives back, a low priority."""

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

END_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGHUP", "SIGBREAK")  # the last: a closing Windows console
    if hasattr(signal, name)
)


def code_after(number: int) -> int:
    """The exit code of a process that a signal ended, by the convention of shells."""
    return 128 + number


def heeded(numbers: tuple[int, ...] = END_SIGNALS) -> list[int]:
    """Signals that the parent process did not set to be ignored, as nohup does."""
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Constants of glibc's malloc.h."""

_LARGE_BYTES = 4 << 20
"""Larger than the logits that are copied in every step."""


def return_large_blocks() -> None:
    """Make glibc return large blocks to the system; other C libraries do so already.

    By default glibc raises its threshold to the largest block freed so far, and each thread's arena
    then keeps up to twice as much: 48 MB more after some hundred answers. Python runs one thread at
    a time, so a single arena is enough.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # musl has no mallopt
        library = ctypes.CDLL(None)
        library.mallopt(_ARENA_MAX, 1)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGE_BYTES)


def return_freed_memory() -> None:
    """Return what was freed to the system, also between blocks in use, if glibc keeps it.

    After a drafter of 135M was freed, it kept 20 MB that a streaming model's pages could use.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # musl has no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


_NICE = 10
_AUTOGROUP = Path("/proc/self/autogroup")
"""Linux weighs sessions against each other, whatever priority processes have within one."""


def lower_priority() -> None:
    """Let every other program go first, where the system allows it.

    In a session with a terminal, only programs of that session: what was set for it would stay
    when this process is killed.
    """
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process()
        if sys.platform == "win32":
            process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
            return
        process.nice(max(int(process.nice() or 0), _NICE))
        if os.getsid(0) == os.getpid():
            _AUTOGROUP.write_text(f"{_NICE}", encoding="ascii")
