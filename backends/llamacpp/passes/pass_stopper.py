"""Stops a long pass of llama.cpp before its end."""

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false

import ctypes
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread

from llama_cpp import llama_cpp as api

from backends.base.pass_stop import stop_of_passes

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
