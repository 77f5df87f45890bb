"""Retrieval: what followed when these words were said in an earlier chat.

He et al. 2023, "REST: Retrieval-Based Speculative Decoding" (arXiv 2311.08252); here the longest
match only, and one draft, chosen token by token among all that followed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.drafters.no_backlog import NoBacklog
from decoding.retrieval.corpus import Corpus
from decoding.retrieval.segment import Occurrence
from decoding.sampler import Sampler

_LENGTHS = ((3, 0.35), (4, 0.5), (6, 0.65), (8, 0.75), (11, 0.85), (16, 0.9), (24, 0.95))
"""Lengths where a class of matches begins, and how often one goes on before this is known."""

_SHARES = (0.5, 0.8, 1.0)
"""Shares of what followed that agree, where a class begins; below the first is one more."""

_ALONE = len(_SHARES) + 1
"""The class of what followed once only: nothing contradicts it, nothing confirms it."""

_HALF_LIFE = 30 * 86_400.0
"""Seconds after which what was said counts half as much as what was said last."""


class Retrieval(NoBacklog):
    """Proposes what is likeliest to follow, by number and age of the places that match longest."""

    is_free = True

    def __init__(self, corpus: Corpus, *, min_match: int = 3, max_draft: int = 15) -> None:
        self.name = "retrieval"
        self._corpus = corpus
        self._min_match = min_match
        self._max_draft = max_draft

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        del history, sampler  # it says what it found, whatever the settings
        self._corpus.refresh()

    def commit(self, history: Sequence[int]) -> None:
        """It learns from chats that are finished."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on  # its evidence is known at once
        count = min(limit, self._max_draft)
        if count <= 0:
            return NO_DRAFT
        length, found = self._corpus.find(history, self._min_match, count)
        if not found:
            return NO_DRAFT
        tokens: list[int] = []
        confidence: list[float] = []
        evidence: list[int] = []
        for token, share, is_alone in _likeliest(found):
            # A token is judged only if those before it are right: the match has grown by them.
            longer = bisect_right(_LENGTHS, length + len(tokens), key=lambda entry: entry[0]) - 1
            sureness = _ALONE if is_alone else bisect_right(_SHARES, share)
            tokens.append(token)
            confidence.append(_LENGTHS[longer][1] * share)
            evidence.append(longer * (_ALONE + 1) + sureness)
        return Draft(tuple(tokens), self.name, tuple(confidence), None, tuple(evidence))


def _likeliest(found: Sequence[Occurrence]) -> Iterator[tuple[int, float, bool]]:
    """The token with most weight, its share, and whether it followed once only; then the next.

    The next one is chosen among what went on with those before it.
    """
    latest = max((one.said for one in found), default=0.0)
    weighted = [
        (one.count * 0.5 ** ((latest - one.said) / _HALF_LIFE), one.tokens) for one in found
    ]
    place = 0
    while weighted:
        if len(weighted) == 1 or len({tokens for _, tokens in weighted}) == 1:
            for token in weighted[0][1][place:]:
                yield token, 1.0, len(weighted) == 1
            return
        weights: dict[int, float] = {}
        for weight, tokens in weighted:
            weights[tokens[place]] = weights.get(tokens[place], 0.0) + weight
        token = max(weights, key=weights.__getitem__)
        total = sum(weights.values())
        yield token, weights[token] / total, False
        place += 1
        weighted = [
            pair for pair in weighted if pair[1][place - 1] == token and len(pair[1]) > place
        ]
