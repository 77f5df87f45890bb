"""Prompt lookup: drafts what followed the latest occurrence of the longest matching suffix.

Saxena 2023, prompt lookup decoding.
"""

from bisect import bisect_right
from collections.abc import Sequence

from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, KeepOn
from decoding.drafters.lookup.suffix_index import SuffixIndex
from decoding.drafters.no_backlog import NoBacklog
from decoding.forms import PointMassLine
from decoding.sampling.sampler import Sampler

_CLASSES = (
    (1, 0.2), (2, 0.5), (3, 0.6), (4, 0.7), (5, 0.75), (6, 0.8), (8, 0.85), (11, 0.9), (15, 0.92),
    (20, 0.94), (30, 0.96), (50, 0.97),
)  # fmt: skip
"""Shortest match of each class, and its prior acceptance."""


class PromptLookup(NoBacklog):
    """Proposes the continuation of an earlier occurrence of the history's suffix."""

    is_free = True

    def __init__(self, *, min_match: int = 2, max_draft: int = MOST_DRAFTED) -> None:
        self.name = "lookup"
        self._min_match = min_match
        self._max_draft = max_draft
        self._restart()

    def _restart(self) -> None:
        self._index = SuffixIndex()
        self._indexed: list[int] = []
        self._committed = 0

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        del sampler  # what matches does not depend on the settings
        if list(history[: len(self._indexed)]) != self._indexed:
            self._restart()
        self.commit(history)
        self._catch_up(history)

    def commit(self, history: Sequence[int]) -> None:
        self._committed = len(history)

    def _catch_up(self, history: Sequence[int]) -> None:
        for token in history[len(self._indexed) : self._committed]:
            self._index.append(token)
            self._indexed.append(token)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on  # the whole draft costs one search
        self._catch_up(history)
        length, end = self._index.match_after(history[len(self._indexed) :])
        count = min(limit, self._max_draft)
        if count <= 0 or length < self._min_match:
            return NO_DRAFT
        tokens = list(history[end : end + count])
        # Where the occurrence reaches the end of the text, the text repeats itself.
        while len(tokens) < count:
            tokens.append(tokens[len(tokens) - (len(history) - end)])
        # A token is judged only if those before it are accepted, which lengthen the match.
        evidence = tuple(_class(length + position) for position in range(count))
        confidence = tuple(_CLASSES[number][1] for number in evidence)
        return Draft(PointMassLine(tuple(tokens)), self.name, confidence, evidence)


def _class(length: int) -> int:
    """Evidence class of a match of at least 1 token."""
    return bisect_right(_CLASSES, length, key=lambda entry: entry[0]) - 1
