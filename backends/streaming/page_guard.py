"""Keeps a page of a mapped file that cannot be read from ending the process (Linux).

The system answers a read of such a page, of a disk that fails or a file that was cut short, with
the signal SIGBUS, whose usual effect is the end. Here zeros take the place of the whole mapping,
the read goes on with them, and who runs the pass asks afterwards whether its results mean anything.
"""

import ctypes
import functools
import signal
import sys
import threading
from collections.abc import Sequence

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
"""What the signal did before the first guard."""


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
        """Guard no longer. Safe to call again."""
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


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sigaction.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    return libc
