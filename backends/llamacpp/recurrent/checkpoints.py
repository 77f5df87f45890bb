"""Copies of a running state outside the engine, to which a context can come back."""

import ctypes

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import CacheState

MOST = 8
"""Most lasting checkpoints: the ends of the last few turns."""

_SEQUENCE = ctypes.c_int32(0)
_STATE_ONLY = ctypes.c_uint32(api.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)


class Checkpoints:
    """Running states by the number of tokens they have read; the shortest go first.

    The engine's keys and values need no copy: those of the first tokens stay as they are.
    """

    def __init__(self, pointer: api.llama_context_p, most_bytes: int) -> None:
        self._pointer = pointer
        self._most_bytes = most_bytes
        self._lasting: dict[int, CacheState] = {}
        self._brief: dict[int, CacheState] = {}

    def latest(self, length: int) -> int:
        """The longest checkpoint of at most length tokens; 0 if there is none."""
        return max((held for held in (*self._lasting, *self._brief) if held <= length), default=0)

    def take(self, length: int, *, is_brief: bool) -> None:
        """Copy the engine's present state, after length tokens, if it fits the bytes allowed."""
        if length in self._lasting or (is_brief and length in self._brief):
            return
        unused = self._brief.popitem()[1] if is_brief and self._brief else None
        state = self._copied(unused)
        if state is None:
            return
        (self._brief if is_brief else self._lasting)[length] = state
        while len(self._lasting) > MOST or self._bytes > self._most_bytes:
            del self._lasting[min(self._lasting)]

    @property
    def _bytes(self) -> int:
        """Size of the lasting ones."""
        return sum(state.size for state in self._lasting.values())

    def _copied(self, state: CacheState | None) -> CacheState | None:
        """A copy of the present state, in the memory of an unused one if there is one."""
        size = api.llama_state_seq_get_size_ext(self._pointer, _SEQUENCE, _STATE_ONLY)
        if not 0 < size <= self._most_bytes:
            return None
        if state is None or state.size != size:
            state = np.empty(size, dtype=np.uint8)
        written = api.llama_state_seq_get_data_ext(
            self._pointer, _bytes_of(state), size, _SEQUENCE, _STATE_ONLY
        )
        return state if written == size else None

    def put_back(self, length: int) -> bool:
        """Replace the engine's state by the one after length tokens; False if it refuses."""
        state = self._lasting.get(length)
        if state is None:
            state = self._brief[length]
        read = api.llama_state_seq_set_data_ext(
            self._pointer, _bytes_of(state), state.size, _SEQUENCE, _STATE_ONLY
        )
        return read == state.size

    def forget_after(self, length: int) -> None:
        """Drop the states that have read more than length tokens."""
        for states in (self._lasting, self._brief):
            for held in [held for held in states if held > length]:
                del states[held]


def _bytes_of(state: CacheState) -> "ctypes.Array[ctypes.c_uint8]":
    return (ctypes.c_uint8 * state.size).from_buffer(state.data)
