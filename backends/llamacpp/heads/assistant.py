"""Assistants of Gemma 4, which read the cache of the model they draft for.

Passes are made up as in common/speculative.cpp of llama-cpp-python 0.3.36: all tokens of a draft
are at the place after the model's last entry.
"""

from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import Logits, ModelError, check_room, check_truncation
from backends.heads.hidden_states import Rows
from backends.llamacpp.heads.opening import Opening, TokenHead
from backends.llamacpp.heads.rows import RowBatch, hidden, keep_hidden


def open_assistant(at: Opening) -> "AssistantContext":
    """A context of an assistant beside an empty one of its model.

    The engine resets the cells that the two share (the constructor of llama_kv_cache).

    Raises:
        OutOfMemoryError: it does not fit in free memory.
    """
    assert at.target.length == 0, "an assistant's context is opened beside an empty one"
    pointer = at.context(reads_target=True)
    keep_hidden(pointer, only_outputs=True)
    return AssistantContext(at, pointer)


class AssistantContext(TokenHead):
    """Reads a token and the hidden state before it, with the model's own entries.

    What the model has passed need not be read, so that only later tokens take a pass. Their states
    are the assistant's own but for that of the model's last token.
    """

    def __init__(self, at: Opening, pointer: api.llama_context_p) -> None:
        states = at.final_states(most=at.target.n_chunk)
        self._batch = RowBatch(1, states.width)
        self._own: Rows | None = None
        """The assistant's state after the last token, if that took a pass."""
        super().__init__(at, pointer, states)
        self.n_chunk = self.max_logits = at.target.n_chunk
        self.kv_bytes_per_token = 0

    def rollback_to(self, length: int) -> int:
        return min(length, len(self.tokens), self._states.end)

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        start, count = len(self.tokens), len(tokens)
        assert 0 <= n_logits <= count <= self.n_chunk
        check_room(self, count)
        passed = min(max(self._states.end - start, 0), count)
        if count - n_logits < passed:
            raise ModelError("the assistant could not draft", "its model has read further")
        self.tokens.extend(tokens[:passed])
        rows: list[Logits] = []
        try:
            for token in tokens[passed:]:
                rows = [row.copy() for row in rows]  # the next pass overwrites them
                rows.append(self._pass(token))
        except ModelError:
            self.truncate(start)
            raise
        if n_logits == 0:
            return np.empty((0, self._n_vocab), np.float32)
        return rows[0] if len(rows) == 1 else np.vstack(rows[-n_logits:])

    def _pass(self, token: int) -> Logits:
        place = api.llama_memory_seq_pos_max(self._memory, 0) + 1
        self._run(self._batch.filled(place, [token], self._state(), outputs=True))
        self.tokens.append(token)
        self._own = hidden(self.pointer, 1, self._states.width).copy()
        row = self._logits(1)
        if np.isnan(row[0, 0]):  # all are, where one of the two uses flash attention
            why = "it attends in another way than its model here"
            raise ModelError("the assistant could not draft", why)
        return row

    def _state(self) -> Rows:
        """The state after the last token; zeros if none is known, as while costs are measured."""
        states, length = self._states, len(self.tokens)
        if states.first < length == states.end:
            return states.rows(length - 1, length)
        if self._own is None:
            return np.zeros((1, states.width), np.float32)
        return self._own

    def truncate(self, length: int) -> None:
        check_truncation(length, len(self.tokens))
        if length < len(self.tokens):
            del self.tokens[length:]
            self._own = None
