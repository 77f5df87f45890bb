"""What llama.cpp asks and tells during a pass: whether to stop, and the experts it chose."""

import ctypes
import functools
import sys
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Self

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base.model import stop_of_passes
from backends.llamacpp import library

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false


STOPPABLE = 16
"""Tokens of a pass that is worth a thread to watch it, which takes 0.1 ms to start. A guess; not
measured."""

_INTERVAL_SECONDS = 0.005

_RUN_ON, _STOP = 0, 1


class PassStopper:
    """Lets passes of a context be stopped by what stopping_passes was given.

    The engine asks after each operation, from within the pass. To answer in Python would wait for
    the interpreter each time, which the screen uses too. It asks the C library instead: strlen of
    an empty text is 0, for "go on", until a thread that watches writes a character into it.
    """

    def __init__(self, pointer: api.llama_context_p) -> None:
        self._pointer = pointer
        self._text = ctypes.create_string_buffer(2)

    @contextmanager
    def watching(self) -> Generator[None]:
        """Let the pass within the block be stopped, if something may stop it."""
        is_stopped = stop_of_passes()
        if is_stopped is None:
            yield
            return
        self._text[0] = _RUN_ON
        address = ctypes.cast(self._text, ctypes.c_void_p)
        api.llama_set_abort_callback(self._pointer, _STRLEN, address)
        ended = Event()
        watcher = Thread(target=self._watch, args=(is_stopped, ended), daemon=True)
        try:
            watcher.start()
            yield
        finally:
            ended.set()
            if watcher.ident is not None:  # else no thread could be started
                watcher.join()
            api.llama_set_abort_callback(self._pointer, _NEVER, ctypes.c_void_p(0))

    def _watch(self, is_stopped: Callable[[], bool], ended: Event) -> None:
        while not ended.wait(_INTERVAL_SECONDS):
            if is_stopped():
                self._text[0] = _STOP
                return


def _strlen() -> "ctypes._CFunctionType":
    library = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    return ctypes.cast(library.strlen, api.ggml_abort_callback)


_STRLEN = _strlen()
_NEVER = api.ggml_abort_callback()


_CHOICE = b"ffn_moe_topk-"
"""Name of the tensor of chosen experts, followed by its layer (llama.cpp, src/llama-graph.cpp).

A later version that calls it otherwise only reads experts without being told before.
"""


class ChosenExperts:
    """Tells the experts that are chosen in each layer, before they are needed.

    callback: for cb_eval of a context's parameters; it must be kept as long as the context.
    """

    def __init__(
        self, ggml: ctypes.CDLL, used: int, choose: Callable[[int, Collection[int]], None]
    ) -> None:
        self._ggml = ggml
        self._used = used
        self._choose = choose
        self.callback = api.ggml_backend_sched_eval_callback(self._look)
        self.was_interrupted = False
        """Whether the engine was told by mistake to leave out the rest of a pass."""

    @classmethod
    def of(cls, used: int, choose: Callable[[int, Collection[int]], None]) -> Self | None:
        """For a model whose tokens use so many experts; None if this build does not tell them.

        choose: called with a layer and its distinct experts, in the thread of the pass.
        """
        ggml = _ggml()
        return None if ggml is None else cls(ggml, used, choose)

    def _look(self, tensor: int, is_asked: bool, _data: object) -> bool:
        """Asked whether a tensor is of interest, and called again once it is computed."""
        name = self._ggml.ggml_get_name(tensor)
        if is_asked:
            return name.startswith(_CHOICE)
        self.was_interrupted = True  # by Ctrl+C, for one: the engine then gets no answer, as for no
        with suppress(Exception):
            self._choose(int(name[len(_CHOICE) :]), _experts(self._ggml, tensor, self._used))
        self.was_interrupted = False
        return True


def _experts(ggml: ctypes.CDLL, tensor: int, used: int) -> set[int]:
    """Distinct values of a tensor of indices, `used` for each token, rows maybe apart.

    It is a view of all experts sorted by probability, or of those chosen alone.
    """
    count, values = ggml.ggml_nelements(tensor), ggml.ggml_nbytes(tensor) // 4
    n_tokens = count // used
    apart = (values - used) // (n_tokens - 1) if n_tokens > 1 else used
    flat = np.empty(values, np.int32)
    ggml.ggml_backend_tensor_get(tensor, flat.ctypes.data, 0, flat.nbytes)
    rows = np.lib.stride_tricks.as_strided(flat, (n_tokens, used), (4 * apart, 4))
    return {int(expert) for expert in np.unique(rows)}


@functools.cache
def _ggml() -> ctypes.CDLL | None:
    """Functions that read a tensor's facts; None in a build without this library."""
    try:
        ggml = library.shared_library("ggml-base")
        ggml.ggml_get_name.restype = ctypes.c_char_p
        ggml.ggml_nelements.restype = ctypes.c_int64
        ggml.ggml_nbytes.restype = ctypes.c_size_t
        for function in (ggml.ggml_get_name, ggml.ggml_nelements, ggml.ggml_nbytes):
            function.argtypes = [ctypes.c_void_p]
        ggml.ggml_backend_tensor_get.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
        ]  # fmt: skip
        ggml.ggml_backend_tensor_get.restype = None
    except (OSError, AttributeError):
        return None
    return ggml
