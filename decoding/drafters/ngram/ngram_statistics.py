"""N-gram statistics with back-off, learned online from a model's own replies.

Contexts of geometric lengths, the longest that is known decides: Seznec and Michaud 2006, "A case
for (partially) tagged geometric history length branch prediction". How sure a guess is, is itself
learned, from how often guesses of its kind came true: secondary estimation, Bloom 1998, "Solving
the problems of context modeling".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from decoding.drafters.ngram.ngram_table import Contents, NgramTable, state_of, token_of

ORDERS = (1, 2, 4, 8)
"""Tokens of the contexts that are kept."""

LONGEST = ORDERS[-1]
KINDS = len(ORDERS) * 64
"""Kinds of guesses: by the length of the context, and how often it was right and wrong."""

_MEMORY = 0.999
"""Share of a count that each new observation keeps: about the last 1,000 matter. A guess; not
measured."""

_PRIOR_WEIGHT = 4.0
"""Observations that a prior counts for. A guess; not measured."""

_MASK = (1 << 64) - 1
_MULTIPLIER = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Guess:
    """The likeliest next token. order: tokens of the context that speaks for it."""

    token: int
    confidence: float
    order: int


@dataclass(frozen=True, slots=True)
class Passage:
    """What a model said. tokens: with what stood before it; the first of its own is at start."""

    tokens: Sequence[int]
    start: int


class NgramStatistics:
    """Learns passages, guesses what follows. Takes 8 MB when full, however much it learns."""

    def __init__(self) -> None:
        self.table = NgramTable()
        self._came_true = [0.0] * KINDS
        self._judged = [0.0] * KINDS

    @classmethod
    def of(cls, contents: Contents, counts: NDArray[np.float64]) -> Self:
        """Statistics with what others had learned; counts has shape (2, KINDS)."""
        statistics = cls()
        statistics.table = NgramTable.of(contents)
        statistics._came_true, statistics._judged = counts.tolist()
        return statistics

    @property
    def counts(self) -> NDArray[np.float64]:
        """Guesses that came true, and all that were judged, by kind; shape (2, KINDS)."""
        return np.array([self._came_true, self._judged])

    def guess(self, text: Sequence[int]) -> Guess | None:
        """The likeliest token after a text, by its longest known suffix; None if none is known."""
        keys = list(_keys(text))
        for place in range(len(keys) - 1, -1, -1):
            entry = self.table.find(keys[place])
            if entry:
                confidence = self._confidence(place << 6 | state_of(entry))
                return Guess(token_of(entry), confidence, ORDERS[place])
        return None

    def learn(self, passage: Passage) -> None:
        """Learn what was said, token by token; each guess there would have been is judged first."""
        tokens = passage.tokens
        for end in range(passage.start, len(tokens)):
            self._learn(tokens[max(0, end - LONGEST) : end], tokens[end])

    def _learn(self, text: Sequence[int], token: int) -> None:
        unjudged = True
        table = self.table
        for place, key in reversed(list(enumerate(_keys(text)))):
            if unjudged and (entry := table.find(key)):
                self._judge(place << 6 | state_of(entry), token_of(entry) == token)
                unjudged = False
            table.learn(key, token)
        table.learned += 1

    def _judge(self, kind: int, came_true: bool) -> None:
        self._came_true[kind] = self._came_true[kind] * _MEMORY + came_true
        self._judged[kind] = self._judged[kind] * _MEMORY + 1.0

    def _confidence(self, kind: int) -> float:
        """The share of guesses of a kind that came true; a prior where few were judged."""
        right, wrong = kind >> 3 & 7, kind & 7
        prior = right / (right + wrong + 1.0)
        came_true, judged = self._came_true[kind], self._judged[kind]
        return (came_true + _PRIOR_WEIGHT * prior) / (judged + _PRIOR_WEIGHT)


def _keys(text: Sequence[int]) -> Iterable[int]:
    """A hash of the end of a text for each order that it is long enough for, shortest first."""
    key = place = 0
    for length, token in enumerate(reversed(text[-LONGEST:]), start=1):
        key = (key + token + 1) * _MULTIPLIER & _MASK
        if length == ORDERS[place]:
            yield (key ^ key >> 29) * _MULTIPLIER >> 4 & _MASK
            place += 1
