"""The running state of a context: how far it can go back, and copies to go back to."""

import ctypes
from typing import TYPE_CHECKING

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import CacheState
from backends.base.checkpoints import Checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable


def kept_snapshots(n_tokens: int, depth: int) -> int:
    """Tokens that may be taken back after a pass over n_tokens, in a context of this depth.

    A pass writes the state after each of its last depth + 1 tokens, as far as it has so many. The
    engine accepts a rollback of depth tokens in any case, and goes on from the state of an earlier
    pass if this one was too short.
    """
    return min(depth, n_tokens - 1)


_SEQUENCE = ctypes.c_int32(0)
_STATE_ONLY = ctypes.c_uint32(api.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)


def bytes_of(state: CacheState) -> "ctypes.Array[ctypes.c_uint8]":
    return (ctypes.c_uint8 * state.size).from_buffer(state.data)


class RunningState:
    """State of a context's only sequence, with the engine's snapshots and our checkpoints.

    The engine's own check of a rollback lets through what gives a stale state, so that what may be
    taken back is counted here: of the last pass only, and once.

    depth: snapshots that the engine keeps of a pass; 0 if none. most_bytes: of all checkpoints.
    """

    def __init__(
        self, pointer: api.llama_context_p, memory: api.llama_memory_t, depth: int, most_bytes: int
    ) -> None:
        self.depth = depth
        self._pointer = pointer
        self._memory = memory
        self._checkpoints = Checkpoints[CacheState](most_bytes)
        self._takeable = 0
        """Tokens that may be taken back by the engine's snapshots."""
        self.position: Callable[[int], int] = int
        """The engine's position after so many tokens."""

    def passed(self, n_tokens: int) -> None:
        self._takeable = kept_snapshots(n_tokens, self.depth)

    def rollback_to(self, length: int, held: int) -> int:
        if held - length <= self._takeable:
            return length
        return self._checkpoints.latest(length)

    def go_back(self, length: int, held: int) -> int:
        """Go back from held to fewer tokens, and return what is held then.

        That is held if it is impossible, and fewer than length if the engine refused a checkpoint.
        """
        if length != self.rollback_to(length, held):
            return held
        if held - length <= self._takeable:
            if not api.llama_memory_seq_rm(self._memory, 0, self.position(length), -1):
                return held
            self._takeable = 0
            self._checkpoints.forget_after(length)
            return length
        return self.recover(length)

    def recover(self, length: int) -> int:
        """Go back to the longest checkpoint of at most length tokens, whatever the engine holds.

        Returns its length, 0 if there was none or the engine refused it.
        """
        reached = self._checkpoints.latest(length)
        if reached and not self._put_back(self._checkpoints[reached]):
            reached = 0
        api.llama_memory_seq_rm(self._memory, 0, self.position(reached), -1)
        self._takeable = 0
        self._checkpoints.forget_after(reached)
        return reached

    def is_held(self, length: int) -> bool:
        """Whether there is a checkpoint after just so many tokens, or nothing was read."""
        return self._checkpoints.latest(length) == length

    def checkpoint(self, length: int, *, is_brief: bool) -> None:
        """Keep a copy of the state after length tokens, which is the present one."""
        checkpoints = self._checkpoints
        if not length or checkpoints.has(length, is_brief=is_brief):
            return
        state = self._copied(checkpoints.unused() if is_brief else None)
        if state is not None:
            checkpoints.hold(length, state, is_brief=is_brief)

    def _copied(self, state: CacheState | None) -> CacheState | None:
        """A copy of the present state, in the memory of an unused one if there is one."""
        size = api.llama_state_seq_get_size_ext(self._pointer, _SEQUENCE, _STATE_ONLY)
        if not 0 < size <= self._checkpoints.most_bytes:
            return None
        if state is None or state.size != size:
            state = np.empty(size, dtype=np.uint8)
        written = api.llama_state_seq_get_data_ext(
            self._pointer, bytes_of(state), size, _SEQUENCE, _STATE_ONLY
        )
        return state if written == size else None

    def _put_back(self, state: CacheState) -> bool:
        """Replace the engine's state by a copy; False if it refuses."""
        read = api.llama_state_seq_set_data_ext(
            self._pointer, bytes_of(state), state.size, _SEQUENCE, _STATE_ONLY
        )
        return read == state.size
