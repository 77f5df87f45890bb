"""What followed a context the last times: one token per context, in a table that never grows.

Each context keeps its likeliest follower and how often that was right and wrong lately. Contexts
are known by a hash: sets of a few entries, and in a full set the one that was right least often
lately gives way. So the table forgets by itself, what was said long ago first.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

SLOTS = 1 << 20
"""Entries of 8 bytes."""

N_BYTES = 8 * SLOTS
"""Of a table that is full; the system gives memory as entries come."""

MOST = 7
"""Up to which right and wrong are counted; at one more both are halved, so that lately counts."""

_WAYS = 4
_SETS = SLOTS // _WAYS
_STATE_BITS = 6
_STATE = (1 << _STATE_BITS) - 1
_EPOCH_SHIFT = 15
"""Every 32,768 tokens what an entry was right counts half, where entries compete for room."""

_SIXTEEN = 0xFFFF


ENTRY = np.dtype([("check", np.uint16), ("epoch", np.uint16), ("word", np.uint32)])
"""What is kept of a context. Its word is `token << 6 | right << 3 | wrong`, 0 in a free slot."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a table holds. slots: of the entries, ascending. learned: tokens learned in all."""

    slots: NDArray[np.uint32]
    entries: NDArray[np.void]
    learned: int

    def is_sound(self, n_vocab: int) -> bool:
        """Whether a table of a vocabulary could hold this."""
        if self.slots.size == 0:
            return True
        words = self.entries["word"]
        ascending = bool((self.slots[1:] > self.slots[:-1]).all())
        in_range = int(self.slots[-1]) < SLOTS and int(words.max()) >> _STATE_BITS < n_vocab
        return ascending and in_range and bool(((words & _STATE) > MOST).all())


class NgramTable:
    """Keys are 64-bit hashes of contexts.

    Two contexts that share a set and 16 more bits are taken for one: about 1 lookup in 16,000.
    """

    def __init__(self) -> None:
        self._all: NDArray[np.void] = np.zeros(SLOTS, ENTRY)
        # Single items of a view are read several times as fast as those of an array.
        self._checks = self._all["check"].data
        self._epochs = self._all["epoch"].data
        self._words = self._all["word"].data
        self.learned = 0
        """Tokens learned, each under contexts of several lengths."""

    @classmethod
    def of(cls, contents: Contents) -> Self:
        """A table with what another one held."""
        table = cls()
        table._all[contents.slots] = contents.entries
        table.learned = contents.learned
        return table

    @property
    def contents(self) -> Contents:
        """A copy of what it holds."""
        slots = np.flatnonzero(self._all["word"]).astype(np.uint32)
        return Contents(slots, self._all[slots], self.learned)

    def find(self, key: int) -> int:
        """The word of a context, 0 for none."""
        slot = self._slot(key)
        return 0 if slot < 0 else self._words[slot]

    def learn(self, key: int, token: int) -> None:
        """Take into account what followed a context."""
        epoch = self.learned >> _EPOCH_SHIFT & _SIXTEEN
        slot = self._slot(key)
        if slot < 0:
            slot = self._weakest(key, epoch)
            self._checks[slot] = key & _SIXTEEN
            self._words[slot] = token << _STATE_BITS | 1 << 3
        else:
            self._words[slot] = _updated(self._words[slot], token)
        self._epochs[slot] = epoch

    def _slot(self, key: int) -> int:
        first, check = (key >> 16) % _SETS * _WAYS, key & _SIXTEEN
        for slot in range(first, first + _WAYS):
            if self._checks[slot] == check and self._words[slot]:
                return slot
        return -1

    def _weakest(self, key: int, epoch: int) -> int:
        """The slot of a set that a new entry takes: a free one, or that of the least use lately."""
        first = (key >> 16) % _SETS * _WAYS

        def use(slot: int) -> tuple[int, int]:
            age = (epoch - self._epochs[slot]) & _SIXTEEN
            return (self._words[slot] & _STATE) >> 3 >> age, -age

        slots = range(first, first + _WAYS)
        free = next((slot for slot in slots if not self._words[slot]), None)
        return min(slots, key=use) if free is None else free


def token_of(word: int) -> int:
    """The token that a word gives."""
    return word >> _STATE_BITS


def state_of(word: int) -> int:
    """`right << 3 | wrong` of a word."""
    return word & _STATE


def _updated(word: int, token: int) -> int:
    """A word after one more token; one that is no longer right gives way to the newcomer.

    Misra and Gries 1982, "Finding repeated elements", with a single counter.
    """
    known, right, wrong = token_of(word), state_of(word) >> 3, word & 7
    if token == known:
        right += 1
    else:
        right, wrong = right - 1, wrong + 1
    if right == 0:
        known, right = token, 1
    if right > MOST or wrong > MOST:
        right, wrong = (right + 1) // 2, wrong // 2
    return known << _STATE_BITS | right << 3 | wrong
