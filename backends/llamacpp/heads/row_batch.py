"""Batch of a head: token ids, rows of numbers, or both."""

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false

import ctypes
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import ModelError
from backends.base.hidden_states import Rows


class RowBatch:
    """Memory for passes of up to most tokens, with a row of this width for each; of sequence 0.

    sections: numbers of a position where rows come without tokens: 4 with M-RoPE, else 1.
    """

    def __init__(self, most: int, width: int, sections: int = 1) -> None:
        self._sections = sections
        self._tokens = np.zeros(most, np.int32)
        self._rows = np.zeros((most, width), np.float32)
        self._positions = np.zeros(most * sections, np.int32)
        self._counts = np.ones(most, np.int32)
        self._outputs = np.zeros(most, np.int8)
        own = (ctypes.c_int32 * 1)(0)
        pointer = ctypes.cast(own, ctypes.POINTER(ctypes.c_int32))
        self._sequences = (ctypes.POINTER(ctypes.c_int32) * most)(*[pointer] * most)
        batch: Any = cast(
            "Any", api.llama_batch
        )()  # the engine frees only what llama_batch_init has made
        batch.pos = _address(self._positions, ctypes.c_int32)
        batch.n_seq_id = _address(self._counts, ctypes.c_int32)
        batch.seq_id = ctypes.cast(self._sequences, cast("Any", type(batch.seq_id)))
        batch.logits = _address(self._outputs, ctypes.c_int8)
        self._batch = batch
        self._own = own
        self._token_address = _address(self._tokens, ctypes.c_int32)
        self._row_address = _address(self._rows, ctypes.c_float)

    def filled(
        self, start: int, tokens: Sequence[int] | None, rows: Rows | None, *, outputs: bool
    ) -> Any:
        """The batch with tokens or rows, or both, at positions from start on.

        outputs: whether all of them leave logits and hidden states, or none does.
        """
        batch = self._batch
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


def _address(values: Any, kind: Any) -> Any:
    return values.ctypes.data_as(ctypes.POINTER(kind))


def decode(pointer: api.llama_context_p, batch: api.llama_batch) -> None:
    """Run a batch.

    Raises:
        ModelError: the engine failed.
    """
    if status := api.llama_decode(pointer, batch):
        raise ModelError("the head could not draft", f"llama.cpp code {status}")
