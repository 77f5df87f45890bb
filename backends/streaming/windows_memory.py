"""Calls of Windows for locked memory, readahead and unbuffered files; OSError: it refuses one."""

import ctypes
import sys
from pathlib import Path

if sys.platform != "win32":
    raise ImportError("only on Windows")

import msvcrt
from ctypes import wintypes

_GENERIC_READ = 0x80000000
_SHARE_ALL = 0x7
_OPEN_EXISTING = 3
_NO_BUFFERING = 0x20000000
_INVALID = ctypes.c_void_p(-1).value
_kernel = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel.CreateFileW.restype = wintypes.HANDLE
_kernel.GetCurrentProcess.restype = wintypes.HANDLE
_kernel.VirtualLock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_kernel.VirtualUnlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_kernel.GetProcessWorkingSetSize.argtypes = [
    wintypes.HANDLE,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
]
_kernel.SetProcessWorkingSetSize.argtypes = [wintypes.HANDLE, ctypes.c_size_t, ctypes.c_size_t]


class _Range(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("size", ctypes.c_size_t)]


_kernel.PrefetchVirtualMemory.argtypes = [
    wintypes.HANDLE,
    ctypes.c_size_t,
    ctypes.POINTER(_Range),
    wintypes.ULONG,
]


def open_unbuffered(path: Path) -> int:
    """Descriptor of a file opened for reading past the cache."""
    handle = _kernel.CreateFileW(
        str(path), _GENERIC_READ, _SHARE_ALL, None, _OPEN_EXISTING, _NO_BUFFERING, None
    )
    if handle is None or handle == _INVALID:
        raise ctypes.WinError(ctypes.get_last_error())
    return msvcrt.open_osfhandle(handle, 0)


def grow_working_set(size: int) -> None:
    """Let this process lock so many bytes more, or fewer: up to its minimum working set."""
    process = _kernel.GetCurrentProcess()
    least, most = ctypes.c_size_t(), ctypes.c_size_t()
    _check(_kernel.GetProcessWorkingSetSize(process, ctypes.byref(least), ctypes.byref(most)))
    wanted = least.value + size
    _check(_kernel.SetProcessWorkingSetSize(process, wanted, max(most.value, wanted) + size))


def lock(address: int, size: int) -> None:
    _check(_kernel.VirtualLock(address, size))


def unlock(address: int, size: int) -> None:
    _kernel.VirtualUnlock(address, size)


def prefetch(address: int, size: int) -> None:
    process = _kernel.GetCurrentProcess()
    _check(_kernel.PrefetchVirtualMemory(process, 1, ctypes.byref(_Range(address, size)), 0))


def _check(succeeded: int) -> None:
    if not succeeded:
        raise ctypes.WinError(ctypes.get_last_error())
