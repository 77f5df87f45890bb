"""Finds where rendered text stands in its Markdown source."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = re.compile(r"\S+")

# What rendering leaves out: markup, numbers of items, addresses of links, languages of code.
# Atomic, as a model may write what would take others for ever.
_MARKUP = re.compile(
    r"(?>\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\]\[[^\]\n]*\]"
    r"|(?m:^[ \t>]*+\d{1,9}[.)])|(?:```|~~~)[^\n`]*+|\W|_)*+"
)
_ENTITY = re.compile(r"&(?:#?\w+);")

_REACH = 200
"""Longest markup between two words, in characters."""


@dataclass(frozen=True, slots=True)
class Match:
    """A stretch of rendered text that stands in the source as it is."""

    start: int
    source: int
    length: int


class Alignment:
    """Walks rendered text and its source together.

    Rendered text is the source without its markup. Where that does not hold, as for images, the
    walk ends, and nothing further is aligned.
    """

    def __init__(self, source: str, position: int = 0) -> None:
        self.position = position
        """Where in the source the walk stands."""
        self.is_lost = False
        self._source = source

    def follow(self, rendered: str) -> Iterator[Match]:
        """Walk on to the end of some rendered text."""
        for word in _WORD.finditer(rendered):
            if self.is_lost:
                return
            yield from self._follow_word(word[0], word.start())

    def _follow_word(self, word: str, start: int) -> Iterator[Match]:
        place = -1 if "&" in word else self._next(word)  # an entity may stand for &
        if place >= 0:
            self.position = place + len(word)
            yield Match(start, place, len(word))
            return
        for offset, character in enumerate(word):
            if (match := self._follow_character(character, start + offset)) is None:
                self.is_lost = True
                return
            yield match

    def _next(self, text: str) -> int:
        """Where a text stands next, after nothing but markup; -1 if nowhere near."""
        source, position = self._source, self.position
        last = position + len(text) + _REACH
        place = source.find(text, position, last)
        while place >= 0 and _MARKUP.fullmatch(source, position, place) is None:
            place = source.find(text, place + 1, last)
        return place

    def _follow_character(self, character: str, start: int) -> Match | None:
        """Match one character: some markup may stand before it, or an entity for it."""
        source, position = self._source, self.position
        entity = _ENTITY.search(source, position, position + _REACH)
        if (
            entity is not None
            and html.unescape(entity[0]) == character
            and _MARKUP.fullmatch(source, position, entity.start()) is not None
        ):
            self.position = entity.end()
            return Match(start, entity.start(), 1)
        place = self._next(character)
        if place < 0:
            return None
        self.position = place + 1
        return Match(start, place, 1)
