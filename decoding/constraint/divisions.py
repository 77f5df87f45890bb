"""Divides certain texts into the tokens that a model may well write them in, as it was seen to."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from decoding.constraint.constraint import Evidence

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


Spell = Callable[[bytes], list[int]]
"""The tokens that a text is usually divided into."""

_BEGINS_WORD = re.compile(rb"[^0-9A-Za-z\x80-\xff]*[0-9A-Za-z\x80-\xff]")
_WITHIN_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]{2}")


@dataclass(frozen=True, slots=True)
class Divider:
    """Divides as the model did before, and as its tokenizer does where that is not known.

    texts: of each token. spell: the tokenizer's division of any text.
    """

    texts: Sequence[bytes]
    spell: Spell
    divisions: Divisions

    def divided(
        self, text: bytes, settle: Callable[[], Sequence[int]]
    ) -> Iterator[tuple[int, Evidence]]:
        """Tokens of a text, each with what speaks for it.

        settle: gives the first tokens of the tokenizer's division, whatever follows the text; those
        after them may become part of a longer token. Asked once, and only if it matters.
        """
        usual: dict[int, int] | None = None
        """The settled tokens by where they begin."""
        start = 0
        while rest := text[start:]:
            seen = self.divisions.seen(rest)
            if seen is not None:
                token, evidence = seen.token, _grounds(seen)
            else:
                usual = self._places(text, settle()) if usual is None else usual
                is_settled = start in usual
                token = usual[start] if is_settled else self.spell(rest)[0]
                evidence = self._usual(text, start, token) if is_settled else Evidence.GUESSED
            if not (piece := self.texts[token]) or not rest.startswith(piece):
                return  # no tokens make up this text
            yield token, evidence
            start += len(piece)

    def evidence(self, text: bytes, token: int) -> Evidence:
        """What speaks for a token, proposed by whomever, where a text is certain."""
        seen = self.divisions.seen(text)
        if seen is None:
            return Evidence.GUESSED
        return _grounds(seen) if seen.token == token else Evidence.DIFFERENT

    def learn(self, text: bytes, token: int) -> None:
        piece = self.texts[token]
        if piece and text.startswith(piece):
            self.divisions.learn(text, token)

    def after(self, text: bytes, token: int) -> bytes:
        """What is left of a text after a token; nothing after one that reaches beyond it."""
        piece = self.texts[token]
        return text[len(piece) :] if text.startswith(piece) else b""

    def _places(self, text: bytes, tokens: Sequence[int]) -> dict[int, int]:
        """Tokens that a text begins with, by where they begin; none if it begins otherwise."""
        pieces = [self.texts[token] for token in tokens]
        if not text.startswith(b"".join(pieces)):
            return {}
        return dict(zip(accumulate(map(len, pieces), initial=0), tokens, strict=False))

    def _usual(self, text: bytes, start: int, token: int) -> Evidence:
        """What speaks for the tokenizer's own token at a place of a text."""
        is_within = start > 0 and _WITHIN_WORD.match(text, start - 1)
        begins = _BEGINS_WORD.match(self.texts[token]) and not is_within
        return Evidence.GUESSED if begins else Evidence.LIKELY


def _grounds(seen: Seen) -> Evidence:
    return Evidence.KNOWN if seen.is_steady else Evidence.LIKELY
