"""Pages of a mapped file: locked in memory, and harmless where they cannot be read."""

import ctypes
import errno
import functools
import os
import signal
import sys
import threading
from collections.abc import Sequence
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
    libc.sigaction.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    number, size = ctypes.c_int, ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    return libc


# Keeps a page of a mapped file that cannot be read from ending the process (Linux).
# The system answers a read of such a page, of a disk that fails or a file that was cut short, with
# the signal SIGBUS, whose usual effect is the end. Here zeros take the place of the whole mapping,
# the read goes on with them, and who runs the pass asks afterwards whether its results mean
# anything.

_SIGBUS: int = getattr(signal, "SIGBUS", 0)  # Windows has none
_SIGINFO = 4
"""SA_SIGINFO: the handler is told the address."""
_ADDRESS_AT = 16
"""Offset of si_addr in siginfo_t. Source: asm-generic/siginfo.h, 64 bits."""
_READ = 1
_PRIVATE_FIXED_ANONYMOUS = 0x2 | 0x10 | 0x20

_guards: "list[PageGuard]" = []
_lock = threading.Lock()


class _Action(ctypes.Structure):
    """struct sigaction of Linux's C libraries."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


_before = _Action()


class PageGuard:
    """Guards mappings until it is closed. Does nothing on other systems."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Guard mappings by their addresses and sizes, in whole pages."""
        self._ranges = tuple(ranges)
        self.has_lost = False
        """Whether a page could not be read: the mappings hold zeros since."""
        if sys.platform != "linux":
            return
        with _lock:
            _guards.append(self)
            if len(_guards) == 1:
                action = _Action(ctypes.cast(_on_bus_error, ctypes.c_void_p).value)
                action.flags = _SIGINFO
                _libc().sigaction(_SIGBUS, ctypes.byref(action), ctypes.byref(_before))

    def replace(self, address: int) -> bool:
        """Replace the mapping of an address by zeros; False if it is none of those guarded."""
        for start, size in self._ranges:
            if start <= address < start + size:
                self.has_lost = True
                flags = _PRIVATE_FIXED_ANONYMOUS
                return _libc().mmap(start, size, _READ, flags, -1, 0) == start
        return False

    def close(self) -> None:
        with _lock:
            if self in _guards:
                _guards.remove(self)
                if not _guards:
                    _restore()


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def _on_bus_error(_number: int, information: int, _context: int) -> None:
    """Handle the signal, in the thread that read: an engine's, which runs no Python meanwhile."""
    address = ctypes.c_void_p.from_address(information + _ADDRESS_AT).value or 0
    if not any(guard.replace(address) for guard in tuple(_guards)):
        _restore()  # the read is tried again, and the signal has its usual effect


def _restore() -> None:
    _libc().sigaction(_SIGBUS, ctypes.byref(_before), None)
