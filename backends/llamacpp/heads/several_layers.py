"""Next-token layers that take turns: each predicts one token further than the one before it."""

from collections.abc import Sequence
from typing import cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import ModelError
from backends.base.hidden_states import Rows
from backends.llamacpp.heads.pass_rows import choose_layer
from backends.llamacpp.heads.row_batch import RowBatch, decode


class SeveralLayers:
    """The first layer predicts what follows the text, the second what follows its token, and so on.

    Each has entries of its own at every position, made from the same tokens and states: of the
    model as far as the text goes, then of the layers that drafted. A layer reads what it lacks when
    its turn comes, or once that fills half a pass. The last layer drafts all further tokens, for
    which there is none. Cells are shared: a layer's entries stay where they are while another's
    are made at the same positions, as the engine fills the same cells again.

    chain_heads in common/speculative.cpp of llama-cpp-python 0.3.36, where each layer reads at
    every pass, and drafts are no longer than there are layers.
    """

    def __init__(
        self, pointer: api.llama_context_p, batch: RowBatch, layers: int, most: int
    ) -> None:
        """most: tokens of a pass."""
        self._pointer = pointer
        self._memory = cast("api.llama_memory_t", api.llama_get_memory(pointer))
        self._batch = batch
        self._most = most
        self._ends = [0] * layers
        """Positions up to which each layer has entries."""
        self._first = 0
        """Position of the first token kept: none of the layers lacks an earlier one."""
        self._tokens: list[int] = []
        self._rows: list[Rows] = []
        self._text = 0
        """Positions of the text, after which tokens are drafted."""
        self._lost: int | None = None
        """First position that a failed pass took from all layers."""

    def run(
        self, start: int, tokens: Sequence[int], rows: Rows, *, outputs: bool, is_own: bool
    ) -> int:
        self._append(start, tokens, rows)
        if is_own:
            turn = min(1 + start - self._text, len(self._ends) - 1)
        else:
            turn, self._text = 0, start + len(tokens)
            self._read_late()
        count = self._catch_up(turn, outputs=outputs)
        self._release()
        return count

    @property
    def _end(self) -> int:
        return self._first + len(self._tokens)

    def _append(self, start: int, tokens: Sequence[int], rows: Rows) -> None:
        """Keep tokens for the layers that read them later."""
        if start != self._end:  # positions without states were left out
            self._first, self._ends = start, [start] * len(self._ends)
            self._tokens.clear()
            self._rows.clear()
        self._tokens.extend(tokens)
        self._rows.extend(row.copy() for row in rows)

    def _read_late(self) -> None:
        """Run layers whose turn has not come for long, so that little is kept for them."""
        for layer in range(1, len(self._ends)):
            if 2 * (self._end - self._ends[layer]) >= self._most:
                self._catch_up(layer, outputs=False)

    def _catch_up(self, layer: int, *, outputs: bool) -> int:
        """Run a layer over what it lacks; how many tokens the last pass had."""
        count = 0
        api.llama_memory_seq_rm(self._memory, 0, self._ends[layer], -1)
        choose_layer(self._pointer, layer)
        try:
            while self._ends[layer] < self._end:
                count = self._pass(layer, outputs=outputs)
        except ModelError:
            self._lost = self._ends[layer]
            raise
        finally:
            choose_layer(self._pointer, 0)
        return count

    def _pass(self, layer: int, *, outputs: bool) -> int:
        start = self._ends[layer]
        end = min(start + self._most, self._end)
        read = slice(start - self._first, end - self._first)
        rows = np.vstack(self._rows[read])
        is_last = outputs and end == self._end
        decode(self._pointer, self._batch.filled(start, self._tokens[read], rows, outputs=is_last))
        self._ends[layer] = end
        return end - start

    def _release(self) -> None:
        """Let go of what all layers have read."""
        read = min(self._ends) - self._first
        del self._tokens[:read], self._rows[:read]
        self._first += read

    def forget(self, length: int) -> int:
        left = length if self._lost is None else min(length, self._lost)
        self._lost = None
        api.llama_memory_seq_rm(self._memory, 0, left, -1)
        self._ends = [min(end, left) for end in self._ends]
        self._text = min(self._text, left)
        kept = max(left - self._first, 0)
        del self._tokens[kept:], self._rows[kept:]
        self._first = min(self._first, left)
        return left
