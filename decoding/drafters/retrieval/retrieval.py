"""Retrieval: drafts what followed the same text in earlier chats, or in files.

He et al. 2023, "REST: Retrieval-Based Speculative Decoding" (arXiv 2311.08252); here the longest
match only, and one draft, chosen token by token among all that followed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine
from decoding.drafters.retrieval.segment import Occurrence
from decoding.sampling.sampler import Sampler

_LENGTHS = ((3, 0.35), (4, 0.5), (6, 0.65), (8, 0.75), (11, 0.85), (16, 0.9), (24, 0.95))
"""Shortest match of each class, and its prior acceptance."""

_SHARES = (0.5, 0.8, 1.0)
"""Lower bounds of the classes of agreement among continuations; one more lies below the first."""

_ALONE = len(_SHARES) + 1
"""Class of a continuation that occurred once: neither contradicted nor confirmed."""

_HALF_LIFE = 30 * 86_400.0
"""Age in seconds, relative to the latest occurrence, at which one counts half."""


class Source(Protocol):
    """Where continuations are found, as in a Corpus."""

    def refresh(self) -> None: ...

    def find(
        self, history: Sequence[int], least: int, count: int
    ) -> tuple[int, list[Occurrence]]: ...


class Retrieval(Drafter):
    """Proposes the likeliest continuation, by number and age of the longest matches."""

    is_free = True

    def __init__(
        self,
        corpus: Source,
        *,
        name: str = "retrieval",
        min_match: int = 3,
        max_draft: int = 15,
    ) -> None:
        self.name = name
        self._corpus = corpus
        self._min_match = min_match
        self._max_draft = max_draft

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._corpus.refresh()

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        count = min(limit, self._max_draft)
        if count <= 0:
            return NO_DRAFT
        length, occurrences = self._corpus.find(history, self._min_match, count)
        if not occurrences:
            return NO_DRAFT
        tokens: list[int] = []
        confidence: list[float] = []
        evidence: list[int] = []
        for token, share, is_alone in _likeliest(occurrences):
            # A token is judged only if those before it are accepted, which lengthen the match.
            longer = bisect_right(_LENGTHS, length + len(tokens), key=lambda entry: entry[0]) - 1
            agreement = _ALONE if is_alone else bisect_right(_SHARES, share)
            tokens.append(token)
            confidence.append(_LENGTHS[longer][1] * share)
            evidence.append(longer * (_ALONE + 1) + agreement)
        return Draft(PointMassLine(tuple(tokens)), self.name, tuple(confidence), tuple(evidence))


def _likeliest(occurrences: Sequence[Occurrence]) -> Iterator[tuple[int, float, bool]]:
    """The tokens of the heaviest continuation, each with its share and whether it occurred once.

    Each token is chosen among the continuations that begin with those before it.
    """
    latest = max((occurrence.written_at for occurrence in occurrences), default=0.0)
    weighted = [
        (
            occurrence.count * 0.5 ** ((latest - occurrence.written_at) / _HALF_LIFE),
            occurrence.tokens,
        )
        for occurrence in occurrences
    ]
    position = 0
    while weighted:
        if len(weighted) == 1 or len({tokens for _, tokens in weighted}) == 1:
            for token in weighted[0][1][position:]:
                yield token, 1.0, len(weighted) == 1
            return
        weights: dict[int, float] = {}
        for share, tokens in weighted:
            weights[tokens[position]] = weights.get(tokens[position], 0.0) + share
        token = max(weights, key=weights.__getitem__)
        total = sum(weights.values())
        yield token, weights[token] / total, False
        position += 1
        weighted = [
            pair for pair in weighted if pair[1][position - 1] == token and len(pair[1]) > position
        ]
