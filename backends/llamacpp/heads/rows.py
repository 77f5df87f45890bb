"""Rows of numbers that heads read and leave: batches, hidden states, and inputs of layers."""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import DraftUnavailableError, ModelError
from backends.heads.hidden_states import Rows
from backends.llamacpp.sequences import Batch

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false


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


# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false


class RowBatch(Batch):
    """Memory for passes of up to most tokens, with a row of this width for each; of sequence 0.

    sections: numbers of a position where rows come without tokens: 4 with M-RoPE, else 1.
    """

    def __init__(self, most: int, width: int, sections: int = 1) -> None:
        super().__init__(most, sections)
        self._sections = sections
        self._rows = np.zeros((most, width), np.float32)
        self._token_address = self._tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        self._row_address = self._rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

    def filled(
        self, start: int, tokens: Sequence[int] | None, rows: Rows | None, *, outputs: bool
    ) -> Any:
        """The batch with tokens or rows, or both, at positions from start on.

        outputs: whether all of them leave logits and hidden states, or none does.
        """
        batch = self.batch
        count = len(tokens) if tokens is not None else len(rows) if rows is not None else 0
        batch.n_tokens = count
        batch.token = None if tokens is None else self._token_address
        batch.embd = None if rows is None else self._row_address
        if tokens is not None:
            self._tokens[:count] = tokens
        if rows is not None:
            self._rows[:count] = rows
        positions = np.arange(start, start + count)
        self._positions[:count] = positions
        if tokens is None and self._sections > 1:  # time, height, width; the last is not used
            self._positions[: 3 * count] = np.tile(positions, 3)
            self._positions[3 * count : 4 * count] = 0
        self._outputs[:count] = outputs
        return batch


def decode(pointer: api.llama_context_p, batch: api.llama_batch) -> None:
    """Run a batch. Raises ModelError: the engine failed."""
    check(api.llama_decode(pointer, batch))


def check(status: int) -> None:
    """Refuse what a pass left that ended with another status than success."""
    if status:
        raise ModelError("the head could not draft", f"llama.cpp code {status}")
