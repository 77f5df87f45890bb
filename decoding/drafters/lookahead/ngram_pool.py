"""Pool of n-grams that a model generated, by their first token."""

from collections.abc import Sequence

_MOST_KEYS = 20_000
"""Most first tokens kept, the latest; about 10 MB."""

Ngram = tuple[int, ...]


class NgramPool:
    """The latest few continuations of each token."""

    def __init__(self, per_token: int) -> None:
        self._per_token = per_token
        self._continuations: dict[int, list[Ngram]] = {}

    def add(self, token: int, continuation: Ngram) -> None:
        """Add a continuation of a token as its latest."""
        known = self._continuations.pop(token, [])
        if continuation in known:
            known.remove(continuation)
        self._continuations[token] = [*known, continuation][-self._per_token :]
        if len(self._continuations) > _MOST_KEYS:
            del self._continuations[next(iter(self._continuations))]

    def after(self, token: int) -> Sequence[Ngram]:
        """Continuations of a token, the latest first."""
        return self._continuations.get(token, [])[::-1]
