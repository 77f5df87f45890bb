"""The running state of a context: how far it can go back, and going back."""

from llama_cpp import llama_cpp as api

from backends.llamacpp.recurrent.checkpoints import Checkpoints
from backends.llamacpp.recurrent.snapshots import kept_snapshots


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
        self._memory = memory
        self._checkpoints = Checkpoints(pointer, most_bytes)
        self._takeable = 0
        """Tokens that may be taken back by the engine's snapshots."""

    def passed(self, n_tokens: int) -> None:
        """Note a pass over so many tokens."""
        self._takeable = kept_snapshots(n_tokens, self.depth)

    def reachable(self, length: int, held: int) -> int:
        """The longest length, up to this one, to which a context of held tokens can go back."""
        if held - length <= self._takeable:
            return length
        return self._checkpoints.latest(length)

    def go_back(self, length: int, held: int) -> int:
        """Go back from held to fewer tokens, and return what is held then.

        That is held if it is impossible, and fewer than length if the engine refused a checkpoint.
        """
        if length != self.reachable(length, held):
            return held
        if held - length <= self._takeable:
            if not api.llama_memory_seq_rm(self._memory, 0, length, -1):
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
        if reached and not self._checkpoints.put_back(reached):
            reached = 0
        api.llama_memory_seq_rm(self._memory, 0, reached, -1)
        self._takeable = 0
        self._checkpoints.forget_after(reached)
        return reached

    def is_held(self, length: int) -> bool:
        """Whether there is a checkpoint after just so many tokens, or nothing was read."""
        return self._checkpoints.latest(length) == length

    def checkpoint(self, length: int, *, is_brief: bool) -> None:
        """Keep a copy of the state after length tokens, which is the present one."""
        if length:
            self._checkpoints.take(length, is_brief=is_brief)
