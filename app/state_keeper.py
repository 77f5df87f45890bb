"""Keeps the target's prompt cache over a change of conversation and over the end of the program."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from app.saved_states import SavedStates
from app.session import Session
from app.state_file import SavedState
from app.target_context import TargetContext
from backends.base import ContextFacts, ModelError, ModelInfo
from decoding.prefill import common_prefix
from models.metadata.content_hash import stamp
from models.metadata.fingerprint import fingerprint
from models.metadata.model_files import model_files

Job = Callable[[], None] | None
"""What a thread is asked to do, None to end."""

WORTHWHILE = 64
"""Tokens that must be gained for a state to be written or read."""

_CHANGE_SECONDS = 1.0
"""What a save may take while the first question of another conversation waits."""

_CLOSE_SECONDS = 0.3

_BYTES_PER_SECOND = 300e6
"""About what copying, hashing and writing a state manage."""

_IDLE_SECONDS = 2.0
_IDLE_BYTES_PER_SECOND = 20e6
"""Large states are written after longer silence: each one wears the disk."""


class StateKeeper:
    """Saves and restores one context. Used by the thread that runs it.

    A state counts only for the very file it was computed with, on the same build, device, number
    of threads and size of context: its numbers are then those that would be computed again.
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

    @classmethod
    def of(cls, session: Session) -> "StateKeeper":
        """One for a session's target."""
        states = SavedStates(session.paths.saved_states)
        return cls(session.model.info, session.context, states)

    def next_job(self, jobs: SimpleQueue[Job]) -> Job:
        """What comes next in a queue; when nothing does for a while, a save of the state."""
        if not self.is_unsaved:
            return jobs.get()
        try:
            return jobs.get(timeout=self._idle_seconds)
        except Empty:
            return lambda: self.save(jobs.empty)

    def close(self) -> None:
        """Save the state if that takes no longer than whoever leaves should wait."""
        self._save_within(_CLOSE_SECONDS)

    def answered(self) -> None:
        """Take what the context holds for a conversation that may go on."""
        self._answered = list(self._context.tokens)

    @property
    def is_unsaved(self) -> bool:
        """Whether the end of a conversation is held that is worth writing down."""
        held = self._answered
        gained = len(held) - common_prefix(list(self._saved), held)
        possible = self._key is not None and self._state_bytes <= self._states.most_bytes
        return possible and gained >= WORTHWHILE and held == list(self._context.tokens)

    def prepare(self, prompt: Sequence[int]) -> None:
        """Restore the state that spares most of a prompt, and save first what gives way to it."""
        context = self._context
        kept = self._spared(context.tokens, prompt)
        if kept < context.length / 2:
            self._save_within(_CHANGE_SECONDS)
        if self._key is None or len(prompt) - 1 - kept < WORTHWHILE:
            return
        known = [(self._spared(one.tokens, prompt), one) for one in self._states.of(self._key)]
        for spared, saved in sorted(known, key=lambda pair: pair[0], reverse=True):
            if spared - kept < WORTHWHILE or self._restore(saved):
                return

    def _save_within(self, seconds: float) -> None:
        """Write the state, if that can be done in this time."""
        end = time.monotonic() + seconds
        if self._state_bytes < seconds * _BYTES_PER_SECOND:
            self.save(lambda: time.monotonic() < end)

    def save(self, is_wanted: Callable[[], bool]) -> None:
        """Write the state where it is worth it; is_wanted is asked on the way, False gives up."""
        if self._key is None or not self.is_unsaved or not is_wanted():
            return
        before, self._saved = self._saved, self._answered
        with suppress(ModelError, MemoryError):
            with self._context.use() as context:
                state = context.save()
            if self._states.save(self._key, self._saved, state, is_wanted):
                self._forget_shorter(self._saved)
            else:
                self._saved = before

    @property
    def _idle_seconds(self) -> float:
        """How long nothing should have happened before a save."""
        return _IDLE_SECONDS + self._state_bytes / _IDLE_BYTES_PER_SECOND

    @property
    def _state_bytes(self) -> int:
        return self._context.length * self._context.kv_bytes_per_token

    def _forget_shorter(self, tokens: Sequence[int]) -> None:
        """Remove states of which the one just saved holds nearly all."""
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
        """How many tokens of a prompt need no computing when these are held."""
        spared = min(common_prefix(list(held), list(prompt)), len(prompt) - 1)
        return spared if spared == len(held) or self._context.can_roll_back else 0


def state_key(info: ModelInfo, context: ContextFacts) -> bytes:
    """What tells states apart that cannot stand for each other.

    Raises:
        OSError: the model's files cannot be read.
    """
    files = model_files(info.path)
    place = (info.engine, info.device, info.threads, context.n_ctx, context.kv_bytes_per_token)
    facts = (fingerprint(info.path), *map(stamp, files), *place)
    return hashlib.sha256("\n".join(map(str, facts)).encode()).digest()
