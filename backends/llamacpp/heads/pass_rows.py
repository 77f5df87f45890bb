"""Rows of numbers that llama.cpp leaves after a pass: hidden states, and inputs of layers."""

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false

import ctypes
from functools import cache
from typing import Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import DraftUnavailableError
from backends.base.hidden_states import Rows


def keep_hidden(pointer: api.llama_context_p, *, only_outputs: bool) -> None:
    """Make passes leave hidden states: of all tokens, or of those with logits."""
    _extended().llama_set_embeddings_nextn(pointer, True, only_outputs)


def forget_hidden(pointer: api.llama_context_p) -> None:
    """Make passes leave no hidden states."""
    _extended().llama_set_embeddings_nextn(pointer, False, False)


def choose_layer(pointer: api.llama_context_p, number: int) -> None:
    """Let passes run a next-token layer, 0 for the first, of an architecture that has several."""
    _extended().llama_set_nextn_layer_offset(pointer, number)


def hidden(pointer: api.llama_context_p, count: int, width: int) -> Rows:
    """Hidden states of the last pass, which the next one overwrites."""
    return _view(_extended().llama_get_embeddings_nextn(pointer), count, width)


def keep_layer_inputs(pointer: api.llama_context_p, layer: int, *, keep: bool = True) -> None:
    """Make passes leave the input of a layer, or no longer. Not during a pass."""
    function = _layer_function("set", None, ctypes.c_bool)
    function(pointer, layer, keep)


def layer_inputs(pointer: api.llama_context_p, layer: int, count: int, width: int) -> Rows:
    """Inputs of a layer in the last pass, which the next one overwrites."""
    function = _layer_function("get", ctypes.POINTER(ctypes.c_float))
    return _view(function(pointer, layer), count, width)


def _view(found: Any, count: int, width: int) -> Rows:
    return np.ctypeslib.as_array(found, (count, width))


def _extended() -> Any:
    """The engine's functions for heads.

    Raises:
        DraftUnavailableError: this build does not export them.
    """
    try:
        from llama_cpp import llama_cpp_ext
    except (ImportError, AttributeError) as error:
        raise _missing() from error
    return llama_cpp_ext


_LAYER_FUNCTIONS = {
    "set": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
    ),
    "get": (
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
    ),
}
"""Names in C++ as compilers for Linux and macOS write them, and the one for Windows: the bindings
leave these functions out."""


@cache
def _layer_function(verb: str, result: Any, *further: Any) -> Any:
    for name in _LAYER_FUNCTIONS[verb]:
        function = cast("Any", getattr(api._lib, name, None))  # noqa: SLF001
        if function is not None:
            function.argtypes = [api.llama_context_p_ctypes, ctypes.c_uint32, *further]
            function.restype = result
            return function
    raise _missing()


def _missing() -> DraftUnavailableError:
    return DraftUnavailableError(
        "heads cannot draft here", "this build of llama.cpp does not export what they need"
    )
