"""Drafts from n-gram statistics of the model's own replies, learned online and kept."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine, with_confidence
from decoding.sampling.sampler import Sampler

# What followed a context the last times: one token per context, in a table that never grows.
#
# Each context keeps its likeliest follower and how often that was right and wrong lately. Contexts
# are known by a hash: sets of a few entries, and in a full set the one that was right least often
# lately gives way. So the table forgets by itself, what was said long ago first.

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
        slots = np.flatnonzero(self._all["word"]).astype(np.uint32)
        return Contents(slots, self._all[slots], self.learned)

    def find(self, key: int) -> int:
        """The word of a context, 0 for none."""
        first, check = (key >> 16) % _SETS * _WAYS, key & _SIXTEEN
        for slot in range(first, first + _WAYS):
            if self._checks[slot] == check and self._words[slot]:
                return self._words[slot]
        return 0

    def learn(self, key: int, token: int) -> int:
        """Take into account what followed a context; returns the word that it had, 0 for none."""
        words, free = self._words, -1
        first, check = (key >> 16) % _SETS * _WAYS, key & _SIXTEEN
        epoch = self.learned >> _EPOCH_SHIFT & _SIXTEEN
        for slot in range(first, first + _WAYS):
            word = words[slot]
            if not word:  # slots of a set are taken in order
                free = slot
                break
            if self._checks[slot] == check:
                words[slot] = _updated(word, token)
                self._epochs[slot] = epoch
                return word
        slot = free if free >= 0 else self._least_used(first, epoch)
        self._checks[slot] = check
        self._epochs[slot] = epoch
        words[slot] = token << _STATE_BITS | 1 << 3
        return 0

    def _least_used(self, first: int, epoch: int) -> int:
        """The slot of a full set that was of the least use lately."""

        def use(slot: int) -> tuple[int, int]:
            age = (epoch - self._epochs[slot]) & _SIXTEEN
            return (self._words[slot] & _STATE) >> 3 >> age, -age

        return min(range(first, first + _WAYS), key=use)


def token_of(word: int) -> int:
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


# N-gram statistics with back-off, learned online from a model's own replies.
#
# Contexts of geometric lengths, the longest that is known decides: Seznec and Michaud 2006, "A case
# for (partially) tagged geometric history length branch prediction". How sure a guess is, is itself
# learned, from how often guesses of its kind came true: secondary estimation, Bloom 1998, "Solving
# the problems of context modeling".

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
        table, tokens = self.table, passage.tokens
        of_orders = _keys_along(tokens, passage.start)
        for at, end in enumerate(range(passage.start, len(tokens))):
            token, is_judged = tokens[end], False
            for place in range(len(ORDERS) - 1, -1, -1):
                if ORDERS[place] > end:
                    continue
                word = table.learn(of_orders[place][at], token)
                if word and not is_judged:
                    self._judge(place << 6 | state_of(word), token_of(word) == token)
                    is_judged = True
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


def _keys_along(tokens: Sequence[int], start: int) -> list[list[int]]:
    """As _keys, before each token from start on: by order. Those of too short texts mean nothing.

    Only bits that a table does not look at differ.
    """
    text, ends = np.array(tokens, np.uint64), np.arange(start, len(tokens))
    key, keys = np.zeros(len(ends), np.uint64), list[list[int]]()
    for length in range(1, LONGEST + 1):
        key = (key + text[np.maximum(ends - length, 0)] + 1) * _MULTIPLIER
        if length in ORDERS:
            keys.append(((key ^ key >> 29) * _MULTIPLIER >> 4).tolist())
    return keys


# Drafts from n-gram statistics of the model's own replies.
#
# Stewart et al. 2024 (arXiv 2411.03786), "The N-Grammys". Here the statistics are learned from this
# model's own replies and kept, and every token comes with a confidence.

_PASSAGE = 16
"""Number of emitted tokens that are learned at once, which is less work than one by one."""

_LEAST = 0.05
"""Joint confidence below which no token is worth its cost."""


class Ngram(Drafter):
    """Proposes the model's most frequent continuation; learns from the verified text."""

    is_free = True

    def __init__(self, statistics: NgramStatistics | None = None, *, max_draft: int = 15) -> None:
        self.name = "ngram"
        self.is_forgetful = False
        """Disable learning across replies, for comparisons."""
        self._lasting = statistics or NgramStatistics()
        self._statistics = self._lasting
        self._max_draft = max_draft
        self._heard: list[Passage] = []
        self._history: Sequence[int] = ()
        self._length = 0
        """Number of tokens of the history that are learned already, or not this model's."""

    def beside(self) -> "Ngram":
        """Another for the text of another reply; both learn from both, but it keeps nothing."""
        return Ngram(self._lasting, max_draft=self._max_draft)

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._learn()
        self._length = len(history)  # the prompt is not this model's output
        self._statistics = NgramStatistics() if self.is_forgetful else self._lasting

    def commit(self, history: Sequence[int]) -> None:
        self._history = history
        if len(history) >= self._length + _PASSAGE:
            self._learn()

    def _learn(self) -> None:
        history, self._history = self._history, ()
        if len(history) <= self._length:
            return
        start = min(self._length, LONGEST)
        passage = Passage(history[self._length - start :], start)
        self._statistics.learn(passage)
        if self._statistics is self._lasting:
            self._heard.append(passage)
        self._length = len(history)

    def heard(self) -> list[Passage]:
        """Passages learned since the last call."""
        self._learn()
        heard, self._heard = self._heard, []
        return heard

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        text = list(history[-LONGEST:])
        known = len(text)
        confidence: list[float] = []
        together = 1.0
        while len(confidence) < min(limit, self._max_draft):
            guess = self._statistics.guess(text[-LONGEST:])
            together *= guess.confidence if guess else 0.0
            if guess is None or together < _LEAST:
                break
            text.append(guess.token)
            confidence.append(guess.confidence)
        if not confidence:
            return NO_DRAFT
        return with_confidence(PointMassLine(tuple(text[known:])), self.name, confidence)
