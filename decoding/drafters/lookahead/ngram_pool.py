"""Runs of tokens that a model was heard to say, by the token before them."""

from collections.abc import Sequence

_MOST_KEYS = 20_000
"""Of those said longest ago the oldest are forgotten: some 10 MB."""

Ngram = tuple[int, ...]


class NgramPool:
    """The latest few continuations of each token."""

    def __init__(self, per_token: int) -> None:
        self._per_token = per_token
        self._found: dict[int, list[Ngram]] = {}

    def add(self, token: int, continuation: Ngram) -> None:
        """Take in what followed a token; said again, it is the latest."""
        known = self._found.pop(token, [])
        if continuation in known:
            known.remove(continuation)
        self._found[token] = [*known, continuation][-self._per_token :]
        if len(self._found) > _MOST_KEYS:
            del self._found[next(iter(self._found))]

    def after(self, token: int) -> Sequence[Ngram]:
        """What followed a token, the latest first."""
        return self._found.get(token, [])[::-1]
