"""Mapping a model's file without reading all of it first, for models larger than memory (Linux).

llama.cpp has the system read a whole file while it maps it (MAP_POPULATE), and has no option for
that: a file of 40 GB is read for the better part of a minute, in vain, and nothing can stop it. It
leaves that out on machines with several memory nodes (NUMA), and asks the registry of its processor
backend whether it runs on one. Within this block the registry says so.
"""

import ctypes
import sys
from collections.abc import Generator
from contextlib import contextmanager

from backends.llamacpp import library

_QUESTION = b"ggml_backend_cpu_is_numa"
_API_VERSION = 2
"""GGML_BACKEND_API_VERSION that the structure below is of."""

_GetFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)


class _Registry(ctypes.Structure):
    """struct ggml_backend_reg. Source: ggml/src/ggml-backend-impl.h."""

    _fields_ = [
        ("api_version", ctypes.c_int),
        ("get_name", ctypes.c_void_p),
        ("get_device_count", ctypes.c_void_p),
        ("get_device", ctypes.c_void_p),
        ("get_function", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


def _registry() -> _Registry | None:
    """The registry of the processor backend; None where it is not as it is known here."""
    if sys.platform != "linux":
        return None
    try:
        by_name = library.shared_library("ggml").ggml_backend_reg_by_name
    except (OSError, AttributeError):
        return None
    by_name.argtypes, by_name.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = by_name(b"CPU")
    registry = _Registry.from_address(address) if address else None
    return registry if registry and registry.api_version == _API_VERSION else None


@ctypes.CFUNCTYPE(ctypes.c_bool)
def _yes() -> bool:
    return True


@contextmanager
def mapping_only() -> Generator[None]:
    """Let files that are loaded within the block only be mapped, where this engine allows that.

    The system is then told to expect reads in no order, which is to be taken back afterwards.
    """
    registry = _registry()
    if registry is None:
        yield
        return
    usual = registry.get_function
    found = _GetFunction(usual)

    @_GetFunction
    def answer(registry: int, name: bytes) -> int | None:
        return (
            ctypes.cast(_yes, ctypes.c_void_p).value if name == _QUESTION else found(registry, name)
        )

    registry.get_function = ctypes.cast(answer, ctypes.c_void_p).value
    try:
        yield
    finally:
        registry.get_function = usual
