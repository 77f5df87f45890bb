"""GPUs that llama.cpp puts layers on, with their memory."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

from backends.hardware.gpu import Gpu
from backends.hardware.host import processor_name
from backends.llamacpp import library

_GPU, _IGPU = 1, 2
"""GGML_BACKEND_DEVICE_TYPE_GPU and _IGPU."""

_REMOTE, _METAL = "RPC", "MTL"
"""Names of registries: of servers elsewhere, and of Apple's GPUs, which share the memory."""


@dataclass(frozen=True, slots=True)
class Device:
    """A row of the engine's table of devices.

    kind: ggml_backend_dev_type. registry: of the part of the engine that drives it. free, total:
    bytes, both 0 where unknown.
    """

    kind: int
    registry: str
    name: str
    free: int
    total: int


def gpus() -> tuple[Gpu, ...]:
    """GPUs in the order in which layers are put on them; () without one, or where none is told."""
    try:
        return chosen(_devices()) if library.can_offload() else ()
    except (OSError, AttributeError):  # the libraries of another build
        return ()


def device(gpu_layers: int | None) -> str:
    """Name of the device for a number of GPU layers, None for all layers.

    With the cards' names: what is measured on one says nothing of another.
    """
    if not library.can_offload() or gpu_layers == 0:
        return f"CPU: {processor_name()}"
    names = " + ".join(gpu.name for gpu in gpus())
    layers = "" if gpu_layers is None else f"{gpu_layers} layers"
    told = ", ".join(filter(None, (names, layers)))
    return f"GPU: {told}" if told else "GPU"


def chosen(devices: Iterable[Device]) -> tuple[Gpu, ...]:
    """The devices that the engine uses for a model: GPUs, else those that share the memory.

    A GPU that a second registry lists again counts once. Source: llama_prepare_model_devices.
    """
    rows = [one for one in devices if one.registry != _REMOTE]
    separate = [one for one in rows if one.kind == _GPU]
    used = separate or [one for one in rows if one.kind == _IGPU]
    first: dict[str, str] = {}
    return tuple(
        _gpu(one) for one in used if first.setdefault(one.name, one.registry) == one.registry
    )


def _gpu(device: Device) -> Gpu:
    is_unified = device.kind == _IGPU or device.registry == _METAL
    is_known = device.total > 0
    return Gpu(
        device.name,
        device.free if is_known else None,
        device.total if is_known else None,
        is_unified,
    )


def _devices() -> list[Device]:
    """The engine's table."""
    registry, base = library.shared_library("ggml"), library.shared_library("ggml-base")
    registry.ggml_backend_dev_count.restype = ctypes.c_size_t
    registry.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    registry.ggml_backend_dev_get.restype = ctypes.c_void_p
    return [
        _device(base, registry.ggml_backend_dev_get(index))
        for index in range(registry.ggml_backend_dev_count())
    ]


def _device(base: ctypes.CDLL, pointer: int) -> Device:
    device = ctypes.c_void_p(pointer)
    base.ggml_backend_dev_backend_reg.restype = ctypes.c_void_p
    for text in (base.ggml_backend_dev_description, base.ggml_backend_reg_name):
        text.restype = ctypes.c_char_p
    registry = ctypes.c_void_p(base.ggml_backend_dev_backend_reg(device))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    base.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return Device(
        base.ggml_backend_dev_type(device),
        _text(base.ggml_backend_reg_name(registry)),
        _text(base.ggml_backend_dev_description(device)),
        free.value,
        total.value,
    )


def _text(read: bytes | None) -> str:
    return (read or b"").decode(errors="replace").strip()
