"""Saves the target's prompt cache before it is lost, and restores it for a prompt it fits."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from app.loading.target_context import TargetContext
from app.prompt_cache.saved_states import SavedStates
from app.prompt_cache.state_file import SavedState
from backends.base import ContextFacts, ModelError, ModelInfo
from decoding.prefill import common_prefix
from models.metadata.content_hash import stamp
from models.metadata.fingerprint import fingerprint
from models.metadata.model_files import model_files

WORTHWHILE = 64
"""Tokens that saving or restoring a state must spare at least."""

_CHANGE_SECONDS = 1.0
"""Time for a save that delays the first answer of another conversation."""

_CLOSE_SECONDS = 0.3

_BYTES_PER_SECOND = 300e6
"""Rough throughput of copying, hashing and writing a state."""

_IDLE_SECONDS = 2.0
_IDLE_BYTES_PER_SECOND = 20e6
"""The larger a state, the longer the idle time before it is written: writing wears the disk."""


class StateKeeper:
    """Saves and restores the prompt cache of one context, on the thread that runs it.

    A state is reused only with the file it was computed with, on the same build, device, number of
    threads and context size: computing it again would then give the same numbers.
    """

    def __init__(self, info: ModelInfo, context: TargetContext, states: SavedStates) -> None:
        self._context = context
        self._states = states
        self._key: bytes | None = None
        with suppress(OSError):
            self._key = state_key(info, context)
        self._answered: list[int] = []
        self._saved: Sequence[int] = ()
        states.tidy()

    def due_in(self, idle: float) -> float | None:
        """Seconds until the state is worth saving, after so many idle ones; None if it is not."""
        return self._idle_seconds - idle if self.is_unsaved else None

    def close(self) -> None:
        """Save the state, unless that would delay the exit noticeably."""
        self._save_within(_CLOSE_SECONDS)

    def answered(self) -> None:
        """Note the context's tokens at the end of a conversation, which are worth saving."""
        self._answered = list(self._context.tokens)

    @property
    def is_unsaved(self) -> bool:
        """Whether the context holds a conversation that is worth saving.

        What is read of the next question may follow it, if a context can do without that later.
        """
        answered, held = self._answered, list(self._context.tokens)
        gained = len(answered) - common_prefix(list(self._saved), answered)
        is_possible = self._key is not None and self._state_bytes <= self._states.most_bytes
        is_there = answered == (held[: len(answered)] if self._context.can_roll_back else held)
        return is_possible and gained >= WORTHWHILE and is_there

    def prepare(self, prompt: Sequence[int]) -> bool:
        """Restore the saved state that spares most of a prompt; first save the one it replaces.

        Returns whether a state was restored, or the context emptied by one that is unusable.
        """
        context = self._context
        shared = common_prefix(list(context.tokens), list(prompt))
        kept = context.reachable(min(shared, len(prompt) - 1))
        if kept < context.length / 2:
            self._save_within(_CHANGE_SECONDS)
        if self._key is None or len(prompt) - 1 - kept < WORTHWHILE:
            return False
        states = [
            (self._spared(saved.tokens, prompt), saved) for saved in self._states.of(self._key)
        ]
        is_changed = False
        for spared, saved in sorted(states, key=lambda pair: pair[0], reverse=True):
            if spared - kept < WORTHWHILE:
                break
            is_changed = True
            if self._restore(saved):
                break
        return is_changed

    def run(self, is_wanted: Callable[[], bool]) -> None:
        """Save the state in idle time."""
        self.save(is_wanted)

    def _save_within(self, seconds: float) -> None:
        """Save the state if that takes no longer than this."""
        end = time.monotonic() + seconds
        if self._state_bytes < seconds * _BYTES_PER_SECOND:
            self.save(lambda: time.monotonic() < end)

    def save(self, is_wanted: Callable[[], bool]) -> None:
        """Save the state if it is worth it; stops once is_wanted returns False."""
        if self._key is None or not self.is_unsaved or not is_wanted():
            return
        previous, self._saved = self._saved, list(self._context.tokens)
        with suppress(ModelError, MemoryError):
            with self._context.use() as context:
                state = context.save()
            if self._states.save(self._key, self._saved, state, is_wanted):
                self._forget_shorter(self._saved)
            else:
                self._saved = previous

    @property
    def _idle_seconds(self) -> float:
        """Idle time before a save."""
        return _IDLE_SECONDS + self._state_bytes / _IDLE_BYTES_PER_SECOND

    @property
    def _state_bytes(self) -> int:
        context = self._context
        return context.length * context.kv_bytes_per_token + context.saved_state_bytes

    def _forget_shorter(self, tokens: Sequence[int]) -> None:
        """Remove saved states that are nearly contained in the one just saved."""
        assert self._key is not None
        for other in self._states.of(self._key):
            lost = len(other.tokens) - self._spared(tokens, other.tokens) - 1
            if other.tokens != tuple(tokens) and lost < WORTHWHILE:
                self._states.remove(other)

    def _restore(self, saved: SavedState) -> bool:
        state = self._states.read(saved)
        if state is None:
            return False
        try:
            with self._context.use() as context:
                context.restore(saved.tokens, state)
        except ModelError:
            self._states.remove(saved)
            return False
        self._saved = saved.tokens
        return True

    def _spared(self, held: Sequence[int], prompt: Sequence[int]) -> int:
        """Number of prompt tokens that need not be computed once a state of these is restored."""
        spared = min(common_prefix(list(held), list(prompt)), len(prompt) - 1)
        return spared if spared == len(held) or self._context.can_roll_back else 0


def state_key(info: ModelInfo, context: ContextFacts) -> bytes:
    """Key under which states are interchangeable: file, engine, device, threads, context size.

    Raises:
        OSError: the model's files cannot be read.
    """
    files = model_files(info.path)
    runner = (info.engine, info.device, info.threads)
    size = (context.n_ctx, context.kv_bytes_per_token)
    facts = (fingerprint(info.path), *map(stamp, files), *runner, *size)
    return hashlib.sha256("\n".join(map(str, facts)).encode()).digest()
