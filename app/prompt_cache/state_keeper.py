"""Keeps the target's prompt cache before it is lost, and restores it for a prompt it fits.

In memory where there is room, for conversations that take turns; on disk in idle time, for the next
start of the program.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.loading.target_context import TargetContext
from app.paths import Paths
from app.prompt_cache.saved_states import SavedState, SavedStates
from app.settings.catalogue import DEFAULT_PROMPT_MEMORY
from app.settings.in_effect import settings_in_effect
from backends.base import CacheState, ContextFacts, ModelError, ModelInfo
from backends.hardware.host import available_memory
from decoding.prefill import common_prefix
from models.metadata.identity import fingerprint, model_files, stamp


@dataclass(slots=True, eq=False)
class KeptState:
    """A copy of a prompt cache in memory. is_saved: whether it is on disk too."""

    tokens: tuple[int, ...]
    state: CacheState
    is_saved: bool = False

    @property
    def size(self) -> int:
        return int(self.state.size)


WORTHWHILE = 64
"""Tokens that saving or restoring a state must spare at least."""

_SHARE_LOST = 0.125
"""Share of the context from which what a prompt takes the place of is worth a copy of all of it.
A token of a 1.1B model is copied and restored in 0.2 ms and read in 9 at least, so that a copy
would pay from a fortieth on; but another answer to the same question should not wait for one."""

_CHANGE_SECONDS = 1.0
"""Time for a save that delays the first answer of another conversation."""

_CLOSE_SECONDS = 0.3

_BYTES_PER_SECOND = 300e6
"""Rough throughput of copying, hashing and writing a state."""

_IDLE_SECONDS = 2.0
_IDLE_BYTES_PER_SECOND = 20e6
"""The larger a state, the longer the idle time before it is written: writing wears the disk."""


_SHARE_OF_FREE = 0.25
"""Share of the memory that would be free without the copies. A guess; not measured."""


def memory_bound(paths: Paths) -> Callable[[int], int]:
    """The bound in bytes at any time, given the bytes of the copies then held."""
    setting = settings_in_effect(paths).values.get("prompt_memory", DEFAULT_PROMPT_MEMORY)
    most = int(setting) * 1_000_000
    return lambda held: min(most, int(_SHARE_OF_FREE * (available_memory() + held))) if most else 0


class StateKeeper:
    """Saves and restores the prompt cache of one context, on the thread that runs it.

    A state is reused only with the file it was computed with, on the same build, device, number of
    threads and context size: computing it again would then give the same numbers.

    states: those on disk. most_bytes: the bound of the copies in memory now, given the bytes of
    those that are held.
    """

    def __init__(
        self,
        info: ModelInfo,
        context: TargetContext,
        states: SavedStates,
        most_bytes: Callable[[int], int],
    ) -> None:
        self._context = context
        self._states = states
        self._most_bytes = most_bytes
        self._kept: list[KeptState] = []
        """The least recently used copy first, which goes first."""
        self._key: bytes | None = None
        with suppress(OSError):
            self._key = state_key(info, context.facts)
        self._answered: list[int] = []
        self._saved: Sequence[int] = ()
        self._prompt_tokens = 0
        """Length of the last prompt."""
        states.tidy()

    def due_in(self, idle: float) -> float | None:
        """Seconds until a state is worth saving, after so many idle ones; None if none is."""
        if self.is_unsaved:
            return _idle_seconds(self._state_bytes) - idle
        unsaved = self._unsaved
        return _idle_seconds(unsaved.size) - idle if unsaved is not None else None

    def close(self) -> None:
        """Save what is unsaved, unless that would delay the exit noticeably."""
        end = time.monotonic() + _CLOSE_SECONDS
        self._save_within(_CLOSE_SECONDS)
        while (unsaved := self._unsaved) is not None and time.monotonic() < end:
            if unsaved.size < _CLOSE_SECONDS * _BYTES_PER_SECOND:
                self._save_kept(unsaved, lambda: time.monotonic() < end)
            self._kept.remove(unsaved)

    def answered(self) -> None:
        """Note the context's tokens at the end of a conversation, which are worth keeping."""
        self._answered = list(self._context.facts.tokens)

    @property
    def is_unsaved(self) -> bool:
        """Whether the context holds a conversation that is worth saving.

        What is read of the next question may follow it, if a context can do without that later.
        """
        gained = len(self._answered) - common_prefix(list(self._saved), self._answered)
        is_possible = self._key is not None and self._state_bytes <= self._states.most_bytes
        return is_possible and gained >= WORTHWHILE and self._holds_answered

    @property
    def _holds_answered(self) -> bool:
        """Whether what was answered is still in the context, and can be restored from it."""
        held = list(self._context.facts.tokens)
        if self._context.facts.can_roll_back:
            held = held[: len(self._answered)]
        return bool(self._answered) and self._answered == held

    @property
    def _unsaved(self) -> KeptState | None:
        """A copy in memory that is worth saving on disk, the last used one first."""
        most = self._states.most_bytes if self._key is not None else 0
        unsaved = [kept for kept in self._kept if not kept.is_saved and kept.size <= most]
        return unsaved[-1] if unsaved else None

    def prepare(self, prompt: Sequence[int]) -> bool:
        """Restore the state that spares most of a prompt; first keep the one it replaces.

        Returns whether a state was restored, or the context emptied by one that is unusable, or cut
        to keep it as it was at its prompt's end.
        """
        context = self._context.facts
        length = context.length
        shared = common_prefix(list(context.tokens), list(prompt))
        held = context.rollback_to(min(shared, len(prompt) - 1))
        states = self._fitting(prompt, held)
        for spared, state in states[:1]:
            if isinstance(state, KeptState) and len(state.tokens) - spared - 1 < WORTHWHILE:
                # The prompt goes on with all of it: its place is free for the one that it replaces.
                self._kept.remove(state)
        lost = length - held
        if lost >= WORTHWHILE and lost >= _SHARE_LOST * length:
            self._keep(held)
        self._prompt_tokens = len(prompt)
        for spared, state in states:
            if self._restore(state):
                # Its copy may be given up, so that it has to be kept from here, answered or not.
                self._answered = list(state.tokens[:spared])
                break
        return bool(states) or context.length < length

    def _fitting(
        self, prompt: Sequence[int], held: int
    ) -> list[tuple[int, "KeptState | SavedState"]]:
        """States worth restoring for a prompt, and how many of its tokens they spare; best first.

        held: tokens that the context spares as it is. Of equals those in memory come first.
        """
        least = held + WORTHWHILE
        if len(prompt) - 1 < least:
            return []
        found: list[tuple[int, KeptState | SavedState]] = [
            (self._spared(kept.tokens, prompt), kept) for kept in reversed(self._kept)
        ]
        is_enough = any(self._spares_all(kept.tokens, prompt) for kept in self._kept)
        if self._key is not None and not is_enough:
            found += [(self._spared(one.tokens, prompt), one) for one in self._states.of(self._key)]
        fitting = [pair for pair in found if pair[0] >= least]
        return sorted(fitting, key=lambda pair: pair[0], reverse=True)

    def _keep(self, held: int) -> None:
        """Keep a copy of the context, of which a prompt leaves held tokens; else save it."""
        self._drop_unanswered(held)
        if not self._holds_answered or len(self._answered) < WORTHWHILE:
            return
        room = self._room
        with suppress(ModelError, MemoryError):
            if self._state_bytes > room:
                if held < self._context.facts.length / 2:
                    self._save_within(_CHANGE_SECONDS)
                self._copy_beginning(room, held)
                return
            self._copy(is_saved=not self.is_unsaved)
            if not self._context.facts.can_roll_back:
                self._copy_prompt(held)

    def _drop_unanswered(self, held: int) -> None:
        """Go back to what was answered, where a copy with more than that would be of no use.

        That is so where there is no going back in a copy, as of a context with a running state.
        """
        context = self._context.facts
        count = len(self._answered)
        if context.can_roll_back or common_prefix(list(context.tokens), self._answered) < count:
            return
        place = context.rollback_to(count)
        if max(held, WORTHWHILE) <= place < context.length:
            self._cut(place)
            self._answered = self._answered[:place]

    def _cut(self, length: int) -> None:
        with self._context.use() as context:
            context.truncate(length)

    def _copy_beginning(self, room: int, held: int) -> None:
        """Keep a copy of as much of the beginning of the context as there is room for.

        It spares a part of a prompt that is too long for all of it to be kept, unless that is on
        disk.
        """
        context = self._context.facts
        tokens = room // context.kv_bytes_per_token if context.kv_bytes_per_token else 0
        is_on_disk = list(self._saved) == list(context.tokens)
        if is_on_disk or not context.can_roll_back or tokens < held + WORTHWHILE:
            return
        self._cut(tokens)
        self._copy(is_saved=True)

    def _copy_prompt(self, held: int) -> None:
        """Keep a copy of the context back where the last prompt ended, or before it.

        A copy with the answer is of no use if its text is written otherwise the next time, as there
        is no going back in it.
        """
        facts = self._context.facts
        place = facts.rollback_to(min(self._prompt_tokens, facts.length) - 1)
        if place >= max(held, WORTHWHILE):
            self._cut(place)
            self._copy(is_saved=True)  # on disk there is that of the whole

    def _copy(self, *, is_saved: bool) -> None:
        """Keep a copy of the context in memory, in place of those that it nearly contains."""
        tokens = tuple(self._context.facts.tokens)
        for kept in list(self._kept):
            if self._spares_all(kept.tokens, tokens):
                self._use(kept)
                return
            if len(kept.tokens) - common_prefix(kept.tokens, tokens) < WORTHWHILE:
                self._kept.remove(kept)
                is_saved = is_saved and kept.is_saved
        with self._context.use() as context:
            copy = KeptState(tokens, context.save(), is_saved)
        most = self._room
        if copy.size <= most:
            while self._kept and self._held + copy.size > most:
                del self._kept[0]
            self._kept.append(copy)

    def _use(self, kept: KeptState) -> None:
        """Mark a copy as just used, unless it was given up."""
        if kept in self._kept:
            self._kept.remove(kept)
            self._kept.append(kept)

    @property
    def _held(self) -> int:
        return sum(kept.size for kept in self._kept)

    @property
    def _room(self) -> int:
        """Bytes that a copy in memory may have, perhaps in place of others."""
        return self._most_bytes(self._held)

    def run(self, is_wanted: Callable[[], bool]) -> None:
        self.save(is_wanted)
        while is_wanted() and (unsaved := self._unsaved) is not None:
            self._save_kept(unsaved, is_wanted)

    def _save_within(self, seconds: float) -> None:
        """Save the state if that takes no longer than this."""
        end = time.monotonic() + seconds
        if self._state_bytes < seconds * _BYTES_PER_SECOND:
            self.save(lambda: time.monotonic() < end)

    def save(self, is_wanted: Callable[[], bool]) -> None:
        if self._key is None or not self.is_unsaved or not is_wanted():
            return
        previous, self._saved = self._saved, list(self._context.facts.tokens)
        with suppress(ModelError, MemoryError):
            with self._context.use() as context:
                state = context.save()
            if self._states.save(self._key, self._saved, state, is_wanted):
                self._forget_shorter(self._saved)
            else:
                self._saved = previous

    @property
    def _state_bytes(self) -> int:
        context = self._context.facts
        return context.length * context.kv_bytes_per_token + context.saved_state_bytes

    def _save_kept(self, kept: KeptState, is_wanted: Callable[[], bool]) -> None:
        """Save a copy in memory on disk as well; unless that became unwanted, it is tried once."""
        assert self._key is not None
        kept.is_saved = self._states.save(self._key, kept.tokens, kept.state, is_wanted)
        if kept.is_saved:
            self._forget_shorter(kept.tokens)

    def _forget_shorter(self, tokens: Sequence[int]) -> None:
        """Remove saved states that are nearly contained in the one just saved."""
        assert self._key is not None
        for other in self._states.of(self._key):
            if other.tokens != tuple(tokens) and self._spares_all(tokens, other.tokens):
                self._states.remove(other)

    def _restore(self, found: KeptState | SavedState) -> bool:
        is_kept = isinstance(found, KeptState)
        state = found.state if is_kept else self._states.read(found)
        if state is None:
            return False
        try:
            with self._context.use() as context:
                context.restore(found.tokens, state)
        except ModelError:
            if not is_kept:
                self._states.remove(found)
            elif found in self._kept:
                self._kept.remove(found)
            return False
        if is_kept:
            self._use(found)
        self._saved = () if is_kept and not found.is_saved else found.tokens
        return True

    def _spared(self, held: Sequence[int], prompt: Sequence[int]) -> int:
        """Number of prompt tokens that need not be computed once a state of these is restored."""
        spared = min(common_prefix(list(held), list(prompt)), len(prompt) - 1)
        return spared if spared == len(held) or self._context.facts.can_roll_back else 0

    def _spares_all(self, held: Sequence[int], prompt: Sequence[int]) -> bool:
        """Whether a state of these spares nearly all of a prompt."""
        return len(prompt) - 1 - self._spared(held, prompt) < WORTHWHILE


def _idle_seconds(size: int) -> float:
    return _IDLE_SECONDS + size / _IDLE_BYTES_PER_SECOND


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
