"""Passes of a head's layers over tokens, each with the state before it."""

from collections.abc import Sequence
from typing import Protocol, cast

from llama_cpp import llama_cpp as api

from backends.base.hidden_states import Rows
from backends.llamacpp.heads.row_batch import RowBatch, decode


class LayerPasses(Protocol):
    """Which layers take which passes."""

    def run(
        self, start: int, tokens: Sequence[int], rows: Rows, *, outputs: bool, is_own: bool
    ) -> int:
        """Run tokens at positions from start on, after which all leave logits or none does.

        is_own: whether the row is the head's own state after a drafted token. Returns how many
        tokens the last pass had, of which these are the last.

        Raises:
            ModelError: the engine failed; forget tells what is left.
        """
        ...

    def forget(self, length: int) -> int:
        """Forget positions from length on; the number of positions that are left."""
        ...


class OneLayer:
    """The same layers take every pass."""

    def __init__(self, pointer: api.llama_context_p, batch: RowBatch) -> None:
        self._pointer = pointer
        self._memory = cast("api.llama_memory_t", api.llama_get_memory(pointer))
        self._batch = batch

    def run(
        self, start: int, tokens: Sequence[int], rows: Rows, *, outputs: bool, is_own: bool
    ) -> int:
        del is_own
        decode(self._pointer, self._batch.filled(start, tokens, rows, outputs=outputs))
        return len(tokens)

    def forget(self, length: int) -> int:
        api.llama_memory_seq_rm(self._memory, 0, length, -1)
        return length
