"""An index of texts in memory, for as long as they are of use: of the files of a chat."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decoding.drafters.retrieval.segment import Occurrence
from decoding.drafters.retrieval.segment_file import DEPTH

_KEY = 3
"""Tokens by which places are sorted, and so the shortest match."""

_BITS = 21
_BOUNDARY = (1 << _BITS) - 1
"""Before, between and after the texts; no vocabulary is that large."""

_MOST_OCCURRENCES = 16


class TextIndex:
    """Finds the longest match of a text's suffix, up to DEPTH tokens. 16 bytes per token.

    texts: their tokens, the most relevant text first.
    """

    def __init__(self, texts: Sequence[NDArray[np.uint32]]) -> None:
        gap = np.full(DEPTH, _BOUNDARY, np.uint32)
        self._tokens = np.concatenate([gap, *(part for text in texts for part in (text, gap))])
        wide = self._tokens.astype(np.uint64)
        keys = wide[:-3] << (2 * _BITS) | wide[1:-2] << _BITS | wide[2:-1]
        self._ends = np.argsort(keys, kind="stable").astype(np.uint32)
        self._keys = keys[self._ends]
        self._ends += _KEY

    def refresh(self) -> None:
        """Nothing else changes it."""

    def find(self, history: Sequence[int], least: int, count: int) -> tuple[int, list[Occurrence]]:
        """Length of the longest match of the history's suffix, and up to count tokens after each.

        As Corpus.find does; of more occurrences than are read, those in the first texts.
        """
        suffix = history[-DEPTH:][::-1]
        if len(suffix) < _KEY:
            return 0, []
        key = np.uint64(suffix[2] << (2 * _BITS) | suffix[1] << _BITS | suffix[0])
        first, last = np.searchsorted(self._keys, key), np.searchsorted(self._keys, key, "right")
        ends, length = self._ends[first:last], _KEY
        for token in suffix[_KEY:]:
            longer = ends[self._tokens[ends - (length + 1)] == token]
            if not longer.size:
                break
            ends, length = longer, length + 1
        if not ends.size or length < least:
            return 0, []
        occurrences: list[Occurrence] = []
        for end in ends[:_MOST_OCCURRENCES].tolist():
            tokens = self._tokens[end : end + count].tolist()
            tokens = tokens[: tokens.index(_BOUNDARY)] if _BOUNDARY in tokens else tokens
            if tokens:
                occurrences.append(Occurrence(tuple(tokens), 0.0, 1.0))
        return (length, occurrences) if occurrences else (0, [])
