"""Prompt caches kept in memory while other conversations use the context."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from backends.base import CacheState


@dataclass(slots=True, eq=False)
class KeptState:
    """A copy of a prompt cache in memory. is_saved: whether it is on disk too."""

    tokens: tuple[int, ...]
    state: CacheState
    is_saved: bool = False

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self.state.size)


class KeptStates:
    """Copies of prompt caches, bounded in bytes; the least recently used ones go first.

    most_bytes: the bound now, given the bytes of the copies that are held.
    """

    def __init__(self, most_bytes: Callable[[int], int]) -> None:
        self._most_bytes = most_bytes
        self._states: list[KeptState] = []

    def __iter__(self) -> Iterator[KeptState]:
        """All of them, the least recently used first."""
        return iter(list(self._states))

    @property
    def size(self) -> int:
        """Bytes of all."""
        return sum(kept.size for kept in self._states)

    @property
    def room(self) -> int:
        """Bytes that a copy may have, perhaps in place of others."""
        return self._most_bytes(self.size)

    def add(self, tokens: Sequence[int], state: CacheState, *, is_saved: bool = False) -> None:
        """Keep a copy; others make room for it. Nothing is kept that is beyond the bound."""
        kept = KeptState(tuple(tokens), state, is_saved)
        most = self.room
        if kept.size > most:
            return
        while self._states and self.size + kept.size > most:
            del self._states[0]
        self._states.append(kept)

    def use(self, kept: KeptState) -> None:
        """Mark a copy as just used."""
        if kept in self._states:
            self._states.remove(kept)
            self._states.append(kept)

    def remove(self, kept: KeptState) -> None:
        """Give up a copy."""
        if kept in self._states:
            self._states.remove(kept)
