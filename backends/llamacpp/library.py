"""The loaded llama.cpp library: started once, its log kept instead of printed."""

import ctypes
import functools
import os
import sys
from collections import deque
from importlib import metadata
from pathlib import Path

import llama_cpp
from llama_cpp import llama_cpp as api

from backends.base import UsageError
from backends.hardware.nvidia import LIBRARIES_VARIABLE

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


@functools.cache
def shared_library(name: str) -> ctypes.CDLL:
    """A library of the engine, which is loaded already: ggml or ggml-base.

    Raises:
        OSError: this build has none of that name.
    """
    forms = {"win32": "{}.dll", "darwin": "lib{}.dylib"}
    file = forms.get(sys.platform, "lib{}.so").format(name)
    folder = os.environ.get(LIBRARIES_VARIABLE) or Path(llama_cpp.__file__).parent / "lib"
    return ctypes.CDLL(str(Path(folder) / file))


def forget_log() -> None:
    """Clear the log, so that last_reason reports the next call."""
    _messages.clear()


def last_reason() -> str:
    """Engine's message about the last failure, "" without one."""
    for message in _messages:
        if message.startswith("gguf_init"):  # the first is the most specific
            return message.partition(": ")[2]
        if "error loading model" in message or "unknown model architecture" in message:
            return message.partition("error loading model: ")[2] or message
    return _messages[-1] if _messages else ""


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
    return bool(api.llama_supports_gpu_offload())


def check_gpu_layers(gpu_layers: int | None) -> None:
    """Refuse GPU layers if this build supports no GPU here.

    Raises:
        UsageError: it supports none.
    """
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
