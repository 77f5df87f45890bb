"""The llama.cpp library: started once, its log kept instead of printed, the GPUs it drives."""

import ctypes
import functools
import os
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import llama_cpp
from llama_cpp import llama_cpp as api

from backends.base import CacheType, DeviceLostError, UsageError
from backends.hardware import gpu_loss
from backends.hardware.host import Gpu, processor_name
from backends.hardware.nvidia import LIBRARIES_VARIABLE

GGML_TYPES = {
    CacheType.F16: api.GGML_TYPE_F16,
    CacheType.Q8_0: api.GGML_TYPE_Q8_0,
    CacheType.Q4_0: api.GGML_TYPE_Q4_0,
}
"""Types of KV cache as the engine numbers them."""

_WARN = 3
_ERROR = 4
_messages: deque[str] = deque(maxlen=20)


@api.llama_log_callback
def keep_log(level: int, text: bytes | None, _user_data: object) -> None:
    # WARN is 3 and ERROR is 4; a continued line (5) belongs to whatever came before.
    if level in (_WARN, _ERROR) and text:
        _messages.append(text.decode("utf-8", errors="replace").strip())


@functools.cache
def start() -> None:
    """Start the engine, quietly. Safe to call again."""
    api.llama_log_set(keep_log, ctypes.c_void_p(0))
    api.llama_backend_init()
    gpu_loss.guard(api)
    if _has_gpu():
        gpu_loss.survive(shared_library("ggml-base"), driver_error)


@functools.cache
def shared_library(name: str) -> ctypes.CDLL:
    """A library of the engine, which is loaded already: ggml or ggml-base.

    The engine has loaded the file whose name has a version. In a wheel, without links, that of the
    plain name is a copy, which would be another library with a table of devices of its own.

    Raises:
        OSError: this build has none of that name.
    """
    forms = {"win32": ("{}.dll", "{}.dll"), "darwin": ("lib{}.dylib", "lib{}.*.dylib")}
    plain, numbered = forms.get(sys.platform, ("lib{}.so", "lib{}.so.*"))
    folder = Path(os.environ.get(LIBRARIES_VARIABLE) or Path(llama_cpp.__file__).parent / "lib")
    found = sorted(folder.glob(numbered.format(name)), key=lambda file: len(file.name))
    return ctypes.CDLL(str(found[0] if found else folder / plain.format(name)))


def forget_log() -> None:
    """Clear the log, so that last_reason reports the next call."""
    _messages.clear()


def last_reason() -> str:
    """Engine's message about the last failure, "" without one."""
    for message in _messages:
        if message.startswith("gguf_init"):  # the first is the most specific
            return message.partition(": ")[2]
        if message.startswith("clip_init: "):
            return message.rpartition(": ")[2]
        if "error loading model" in message or "unknown model architecture" in message:
            return message.partition("error loading model: ")[2] or message
    return _messages[-1] if _messages else ""


def driver_error() -> str:
    """What a GPU's driver said last, such as "CUDA error: out of memory"; "" if nothing."""
    return next((one for one in reversed(_messages) if "error: " in one), "")


def system_info() -> str:
    """Instruction sets and devices of this build, as llama.cpp names them."""
    start()
    return api.llama_print_system_info().decode()


def build() -> str:
    """Version of the engine, with the instruction sets and devices of its build."""
    return f"llama-cpp-python {metadata.version('llama-cpp-python')} {system_info().strip(' |')}"


def can_offload() -> bool:
    """Whether this build can run on a GPU of this machine."""
    start()
    return not gpu_loss.why() and _has_gpu()


def _has_gpu() -> bool:
    if api.llama_supports_rpc():  # then the engine always says so
        return bool(used_pointers())
    return bool(api.llama_supports_gpu_offload())


def check_gpu_layers(gpu_layers: int | None) -> None:
    """Refuse GPU layers if this build supports no GPU here. Raises UsageError: it supports none."""
    if gpu_layers and not can_offload():
        raise UsageError(
            f"--gpu-layers {gpu_layers} cannot be used",
            "llama.cpp runs on the processor alone here",
            "`specchat doctor` shows how to change that.",
        )


@functools.cache
def repacking_is_exact() -> bool:
    """Whether weights may be repacked for speed.

    A build with AMX uses other kernels for several tokens than for one: they round differently
    and crash on some machines.
    """
    return "AMX_INT8 = 1" not in system_info()


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
    pointer: int = 0


def gpus() -> tuple[Gpu, ...]:
    """GPUs in the order in which layers are put on them; () without one, or where none is told."""
    return tuple(map(_gpu, _used())) if can_offload() else ()


def device(gpu_layers: int | None, peers: Sequence[str] = ()) -> str:
    """Name of the device for a number of GPU layers, None for all layers.

    With the cards' names: what is measured on one says nothing of another. peers: names of other
    machines that layers go to before the GPUs here; with them the name begins with RPC.
    """
    if not (peers or can_offload()) or gpu_layers == 0:
        return f"CPU: {processor_name()}"
    names = " + ".join([*peers, *(gpu.name for gpu in gpus())])
    layers = "" if gpu_layers is None else f"{gpu_layers} layers"
    told = ", ".join(filter(None, (names, layers)))
    kind = "RPC" if peers else "GPU"
    return f"{kind}: {told}" if told else kind


def used_pointers() -> list[int]:
    """Addresses of the engine's devices for a model, in their order; [] where none is told."""
    return [one.pointer for one in _used()]


def _used() -> list[Device]:
    """The devices that the engine uses for a model: GPUs, else those that share the memory.

    A GPU that a second registry lists again counts once. Source: llama_prepare_model_devices.
    """
    try:
        rows = [one for one in _devices() if one.registry != _REMOTE]
    except (OSError, AttributeError, DeviceLostError):  # the libraries of another build
        return []
    separate = [one for one in rows if one.kind == _GPU]
    used = separate or [one for one in rows if one.kind == _IGPU]
    first: dict[str, str] = {}
    return [one for one in used if first.setdefault(one.name, one.registry) == one.registry]


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
    return [device_at(pointer) for pointer in device_pointers()]


def device_pointers() -> list[int]:
    registry = shared_library("ggml")
    registry.ggml_backend_dev_count.restype = ctypes.c_size_t
    registry.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    registry.ggml_backend_dev_get.restype = ctypes.c_void_p
    count = registry.ggml_backend_dev_count()
    return [registry.ggml_backend_dev_get(index) for index in range(count)]


def device_at(pointer: int) -> Device:
    """The row of a device."""
    base, device = shared_library("ggml-base"), ctypes.c_void_p(pointer)
    base.ggml_backend_dev_backend_reg.restype = ctypes.c_void_p
    for text in (base.ggml_backend_dev_description, base.ggml_backend_reg_name):
        text.restype = ctypes.c_char_p
    registry = ctypes.c_void_p(base.ggml_backend_dev_backend_reg(device))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    gpu_loss.survived(base.ggml_backend_dev_memory, device, ctypes.byref(free), ctypes.byref(total))
    return Device(
        base.ggml_backend_dev_type(device),
        _text(base.ggml_backend_reg_name(registry)),
        _text(base.ggml_backend_dev_description(device)),
        free.value,
        total.value,
        pointer,
    )


def _text(read: bytes | None) -> str:
    return (read or b"").decode(errors="replace").strip()
