"""A GPU that fails: the call that meets it ends with an error, where the engine ends the process.

ggml aborts after any error of a driver: the card is lost, another program has its memory, the build
has no kernels for it (ggml_cuda_error in ggml-cuda.cu). Calls of what is on a GPU run in a greenlet
of their own, which the callback of ggml_abort leaves for good: the stack below is kept and never
unwound. What was on a GPU is then neither run nor freed, as locks may be held and freeing waits for
them (~ggml_backend_cuda_context); whatever is loaded later goes to the processor.
"""

import ctypes
import functools
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from greenlet import getcurrent, greenlet

from backends.base import DeviceLostError

_OPEN = "llama_model_load_from_file", "llama_init_from_model", "mtmd_init_from_file"
_RUN = (
    "llama_decode", "llama_encode", "llama_synchronize", "llama_get_logits", "llama_get_embeddings",
    "llama_get_embeddings_seq", "llama_get_embeddings_nextn", "llama_state_seq_get_data",
    "llama_state_seq_set_data", "llama_state_seq_get_data_ext", "llama_state_seq_set_data_ext",
    "mtmd_encode_chunk",
)  # fmt: skip
_FREE = "llama_free", "llama_model_free", "mtmd_free"

_CAUSES = {
    "no kernel image": "The build has no code for this card: `specchat build cuda` makes one.",
    "out of memory": "Another program may have its memory.",
}
_ON = "Models run on the processor now, and on the GPU again after the next start."

_exposed: set[int] = set()
"""Addresses of models and contexts that may be on a GPU."""
_kept: list[object] = []
_why = ""


class _Call(greenlet):
    """A call that may be left."""


def is_lost() -> bool:
    return bool(_why)


def lose(why: str) -> DeviceLostError:
    """Use no GPU from now on in this process; the error that says so."""
    global _why  # noqa: PLW0603 - there is one engine
    _why = _why or why
    cause = next((told for sign, told in _CAUSES.items() if sign in _why), "")
    return DeviceLostError("the GPU failed", _why, f"{cause} {_ON}".strip())


def survive(base: ctypes.CDLL, reason: Callable[[], str]) -> None:
    """Survive from now on. base: ggml's library. reason: tells what a driver said last."""

    @ctypes.CFUNCTYPE(None, ctypes.c_char_p)
    def left(message: bytes) -> None:
        """Leave the call for good. One of another thread, such as a kernel's, still aborts."""
        call = getcurrent()
        if isinstance(call, _Call) and call.parent is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(call))  # freeing it would go on in it
            call.parent.throw(lose(reason() or message.decode(errors="replace")))

    _kept.append(left)
    base.ggml_set_abort_callback(left)

def guard(module: Any) -> None:
    """Guard the functions of the engine that a module of the binding has."""
    for names, guarded in ((_OPEN, _opening), (_RUN, running), (_FREE, _freeing)):
        for name in names:
            if (function := getattr(module, name, None)) is not None:
                setattr(module, name, guarded(function))


def survived(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what may meet the loss of a GPU. Raises DeviceLostError: it did, or one is lost."""
    if _why:
        raise lose(_why)
    call = _Call(function)
    call.gr_context = copy_context()  # which stops passes
    return call.switch(*arguments)


def running(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the engine whose first argument is what it runs."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        if arguments[0] not in _exposed:
            return function(*arguments)
        return survived(function, *arguments)

    return run


def _opening(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def opened(*arguments: Any) -> Any:
        on_gpu = getattr(arguments[-1], "n_gpu_layers", 0) or not _exposed.isdisjoint(
            one for one in arguments if isinstance(one, int)
        )
        if not on_gpu:
            return function(*arguments)
        pointer = survived(function, *arguments)
        if pointer:
            _exposed.add(pointer)
        return pointer

    return opened


def _freeing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def free(pointer: int) -> None:
        if pointer not in _exposed:
            function(pointer)
            return
        with suppress(DeviceLostError):  # it stays until the process ends
            survived(function, pointer)
            _exposed.remove(pointer)

    return free
