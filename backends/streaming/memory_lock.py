"""Locking pages of a mapping in memory: mlock, or VirtualLock on Windows."""

import ctypes
import errno
import functools
import os
import sys
from contextlib import suppress

_NORMAL, _DONTNEED = 0, 4
"""MADV_NORMAL and MADV_DONTNEED."""


def allow_locking() -> None:
    """Raise this process's limit of locked memory as far as it may itself."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    with suppress(OSError, ValueError):  # then locking tells of the limit
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))


def lock(address: int, size: int) -> None:
    """Read pages in and lock them; address and size are in whole pages.

    Raises:
        OSError: the system refuses.
    """
    if sys.platform == "win32":
        from backends.streaming import windows_memory

        windows_memory.grow_working_set(size)
        windows_memory.lock(address, size)
        return
    if _libc().mlock(address, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def unlock(address: int, size: int) -> None:
    """Unlock pages that were locked."""
    if sys.platform == "win32":
        from backends.streaming import windows_memory

        windows_memory.unlock(address, size)
        with suppress(OSError):
            windows_memory.grow_working_set(-size)
        return
    _libc().munlock(address, size)


def unmap_pages(address: int, size: int) -> None:
    """Take pages out of a mapping; they stay in the cache of files (Linux)."""
    _libc().madvise(address, size, _DONTNEED)


def read_normally(address: int, size: int) -> None:
    """Let the system again read more of a mapping than is asked for (Linux)."""
    _libc().madvise(address, size, _NORMAL)


def refusal(error: OSError) -> str:
    """Why the system refused a lock, and what would change that, as the rest of a sentence."""
    if sys.platform == "win32":
        return f"Windows refused more locked memory ({error.strerror})"
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    is_limited = limit != resource.RLIM_INFINITY
    if error.errno in (errno.ENOMEM, errno.EPERM) and is_limited:
        allowed = f"{limit / 1e6:.0f} MB" if limit >= 1_000_000 else f"{limit / 1e3:.0f} kB"
        return f"the limit of locked memory is {allowed} (ulimit -l)"
    if error.errno == errno.EAGAIN:
        return "the system could not read it into memory"
    return f"the system refused more locked memory ({error.strerror})"


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (libc.mlock, libc.munlock):
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc
