"""How a model divides certain texts into tokens, as it was seen to do."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_MOST_KEPT = 20_000
"""Beginnings of texts that are remembered, in about 4 MB; beyond that the oldest are forgotten."""

_PART = re.compile(rb"[0-9A-Za-z\x80-\xff]{1,64}|[^0-9A-Za-z\x80-\xff]{1,64}")
"""A word, or what is between words."""


_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]")


class Seen(NamedTuple):
    """The token that the model wrote last where an equal text was certain.

    is_steady: whether it never wrote another one there.
    """

    token: int
    is_steady: bool


class Divisions:
    """Remembers with which token the model began each certain text.

    A model divides the name of a property alike wherever it writes it, though not always as its
    tokenizer would. Texts are compared by their first two parts, and where that was never seen, by
    the first one. texts: of each token.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = texts
        self._seen: dict[tuple[int, bytes], Seen] = {}

    def learn(self, text: bytes, token: int) -> None:
        """Remember that the model wrote token where text was certain."""
        for key in _keys(text):
            before = self._seen.pop(key, None)
            is_steady = before is None or before == (token, True)
            self._seen[key] = Seen(token, is_steady)
            if len(self._seen) > _MOST_KEPT:
                del self._seen[next(iter(self._seen))]

    def seen(self, text: bytes) -> Seen | None:
        """What the model wrote where a text began like this one; None if nothing that fits it."""
        known = (self._seen.get(key) for key in _keys(text))
        fitting = (one for one in known if one and text.startswith(self._texts[one.token]))
        return next(fitting, None)


def _keys(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The first two parts of a text, and the first one with whether another follows."""
    first = _part_end(text, 0)
    yield 2, text[: _part_end(text, first)]
    if not _WORD.match(text):
        yield int(first < len(text)), text[:first]


def _part_end(text: bytes, start: int) -> int:
    part = _PART.match(text, start)
    return part.end() if part else start
