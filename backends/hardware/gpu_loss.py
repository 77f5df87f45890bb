"""A GPU that fails: the call that meets it ends with an error, where llama.cpp ends the process.

ggml aborts after any error of a driver: the card is lost, another program has its memory, the build
has no kernels for it (ggml_cuda_error in ggml-cuda.cu). What runs on a GPU is called in a greenlet,
which the callback of ggml_abort leaves for good; the stack below is kept and never unwound. What is
on a GPU is neither run nor freed afterwards: locks may be held, and freeing waits for them
(~ggml_backend_cuda_context). What is loaded later has no devices.
"""

import ctypes
import functools
import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import copy_context
from typing import Any

from greenlet import getcurrent, greenlet

from backends.base import DeviceLostError

_OPEN = re.compile("llama_model_load_from_file|llama_init_from_model|mtmd_init_from_file")
_FREE = re.compile("llama_free|llama_model_free|mtmd_free")
_RUN = re.compile(
    "llama_(decode|encode|synchronize|get_(logits|embeddings)(_\\w+)?|state_seq_[gs]et_data(_ext)?)"
    "|mtmd_encode_chunk"
)
_REMEDY = "Ask again: until the next start the processor answers."
_NO_KERNELS, _BUILD = "no kernel image", "; `specchat build cuda` makes a build for this card"

_none = (ctypes.c_void_p * 1)()
NO_DEVICES: Any = ctypes.addressof(_none)
"""Of a model without layers on a GPU: else its passes over many tokens would run there too."""

_exposed: set[int] = set()
"""Addresses of models and contexts that may be on a GPU."""
_callbacks: list[object] = []
_why = ""


class _Call(greenlet):
    """A call that may be left."""


def why() -> str:
    """Why no GPU is used any more; "" if none was lost."""
    return _why


def lose(cause: str) -> DeviceLostError:
    """Use no GPU from now on in this process; the error that says so."""
    global _why  # noqa: PLW0603 - there is one engine
    _why = _why or f"{cause}{_BUILD if _NO_KERNELS in cause and _BUILD not in cause else ''}"
    return DeviceLostError("the GPU failed", _why, _REMEDY)


def survive(base: ctypes.CDLL, reason: Callable[[], str]) -> None:
    """Survive from now on. base: ggml's library. reason: tells what a driver said last."""

    @ctypes.CFUNCTYPE(None, ctypes.c_char_p)
    def leave(message: bytes) -> None:
        call = getcurrent()
        if isinstance(call, _Call) and call.parent:  # else, such as in a kernel, there is no way
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(call))  # freeing it would go on in it
            call.parent.throw(lose(reason() or message.decode(errors="replace")))

    _callbacks.append(leave)
    base.ggml_set_abort_callback(leave)


def survived(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what may meet the loss of a GPU. Raises DeviceLostError: it did, or one is lost."""
    if _why:
        raise lose(_why)
    call = _Call(function)
    call.gr_context = copy_context()  # which stops passes
    return call.switch(*arguments)


def guarded(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """A function of the engine that survives; name: of one that opens or frees what it is given."""
    opens, frees = _OPEN.fullmatch(name), _FREE.fullmatch(name)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        of, parameters = arguments[-2 if opens else 0], arguments[-1]
        if of not in _exposed and getattr(parameters, "devices", NO_DEVICES) == NO_DEVICES:
            return function(*arguments)
        with suppress(DeviceLostError) if frees else nullcontext():  # what is lost stays
            result = survived(function, *arguments)
            if frees:
                _exposed.remove(of)
            elif opens and result:
                _exposed.add(result)
            return result

    return call


def guard(module: Any) -> None:
    """Let the functions of the engine that a module of the binding has survive."""
    for name in dir(module):
        if any(names.fullmatch(name) for names in (_OPEN, _RUN, _FREE)):
            setattr(module, name, guarded(getattr(module, name), name))
