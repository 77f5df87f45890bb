"""The loaded llama.cpp library: started once, its log kept instead of printed."""

import ctypes
import functools
from collections import deque
from importlib import metadata

from llama_cpp import llama_cpp as api

from backends.base import UsageError
from backends.hardware.host import processor_name

_WARN = 3
_ERROR = 4
_messages: deque[str] = deque(maxlen=20)


@api.llama_log_callback
def _keep_log(level: int, text: bytes | None, _user_data: object) -> None:
    # WARN is 3 and ERROR is 4; a continued line (5) belongs to whatever came before.
    if level in (_WARN, _ERROR) and text:
        _messages.append(text.decode("utf-8", errors="replace").strip())


@functools.cache
def start() -> None:
    """Start the engine, quietly. Safe to call again."""
    api.llama_log_set(_keep_log, ctypes.c_void_p(0))
    api.llama_backend_init()


def forget_log() -> None:
    """Drop what was logged so far, so that the next reason is of the next call."""
    _messages.clear()


def last_reason() -> str:
    """The engine's own words for what just failed, or an empty text."""
    for message in _messages:
        if message.startswith("gguf_init"):  # the first tells most; others say that it failed
            return message.partition(": ")[2]
        if "error loading model" in message or "unknown model architecture" in message:
            return message.partition("error loading model: ")[2] or message
    return _messages[-1] if _messages else ""


def system_info() -> str:
    """Instruction sets and devices this build uses, in llama.cpp's words."""
    start()
    return api.llama_print_system_info().decode()


def build() -> str:
    """This build of the engine, with the instruction sets and devices it uses."""
    return f"llama-cpp-python {metadata.version('llama-cpp-python')} {system_info().strip(' |')}"


def can_offload() -> bool:
    """Whether this build can run on a GPU that is present."""
    start()
    return bool(api.llama_supports_gpu_offload())


def check_gpu_layers(gpu_layers: int | None) -> None:
    """Refuse layers on a GPU that this build does not drive.

    Raises:
        UsageError: it has none.
    """
    if gpu_layers and not can_offload():
        raise UsageError(
            f"--gpu-layers {gpu_layers} cannot be met",
            "llama.cpp runs on the processor alone here",
            "`specchat doctor` tells how to change that.",
        )


def device(gpu_layers: int | None) -> str:
    """What a model with so many layers on the GPU runs on; None for all of them."""
    if not can_offload() or gpu_layers == 0:
        return f"CPU: {processor_name()}"
    return "GPU" if gpu_layers is None else f"GPU: {gpu_layers} layers"


@functools.cache
def repacking_is_exact() -> bool:
    """Whether weights may be rearranged for speed.

    A build with AMX takes other kernels for several tokens than for one: they round differently
    and crash on some machines, so that no weight may go to them.
    """
    return "AMX_INT8 = 1" not in system_info()
