"""Prompt lookup: what followed the last time these words were said.

Saxena 2023, prompt lookup decoding; here with the longest match, at its latest occurrence.
"""

from collections.abc import Sequence

from decoding.draft import NO_DRAFT, Draft
from decoding.sampler import Sampler
from decoding.suffix_index import SuffixIndex


class PromptLookup:
    """Proposes the continuation of the longest earlier occurrence of the history's end.

    It drafts no more tokens than matched: the longer the match, the likelier it goes on.
    """

    def __init__(self, *, min_match: int = 3, max_draft: int = 8) -> None:
        self.name = "lookup"
        self._min_match = min_match
        self._max_draft = max_draft
        self._index = SuffixIndex()
        self._indexed: list[int] = []

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        del sampler  # it says what it found, whatever the settings
        if list(history[: len(self._indexed)]) != self._indexed:
            self._index = SuffixIndex()
            self._indexed = []
        self.commit(history)

    def commit(self, history: Sequence[int]) -> None:
        for token in history[len(self._indexed) :]:
            self._index.append(token)
            self._indexed.append(token)

    def propose(self, history: Sequence[int], limit: int) -> Draft:
        index = self._index
        count = min(limit, self._max_draft, index.match_length)
        if index.match_length < self._min_match or count <= 0:
            return NO_DRAFT
        tokens = list(history[index.match_end : index.match_end + count])
        # Where the occurrence reaches the end of the text, the text repeats itself.
        while len(tokens) < count:
            tokens.append(tokens[len(tokens) - (len(history) - index.match_end)])
        return Draft(tuple(tokens), self.name, (1.0,) * count)
