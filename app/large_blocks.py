"""Large blocks of memory that are freed go back to the system at once."""

import contextlib
import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of glibc's malloc.h."""

_LARGE_BYTES = 4 << 20
"""More than logits that are copied in every step."""


def return_large_blocks() -> None:
    """Keep glibc from keeping them; other C libraries do not.

    It takes the largest block that was ever freed for what a program needs again and again, and
    then keeps up to twice as much for each thread that ran: 48 MB more after some hundred answers.
    Python's threads take turns anyway, so that one store of free blocks serves them all.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # musl has no mallopt
        library = ctypes.CDLL(None)
        library.mallopt(_ARENA_MAX, 1)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGE_BYTES)
