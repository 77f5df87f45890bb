"""Which parts of an answer drafters supplied, and where rendered text stands in its source."""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from textual.content import Span

from app.engine.reply import Reply
from app.tui.look import Kind, kind_of
from decoding.events import Origin

_FULL_SECONDS = 1.0
_HALF_SECONDS = 2.0

_OWN = frozenset(Origin)
"""Origins of tokens that the model supplied itself."""

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


@dataclass(frozen=True, slots=True)
class _Run:
    """Text from start to end that a drafter supplied; at: when it was shown, in seconds."""

    start: int
    end: int
    kind: Kind
    at: float


class DraftedRuns:
    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._faded = 0
        """How many runs, from the first, have no hue any more."""
        self._reply: Reply | None = None
        self._characters = self._token = 0
        """Characters of the reply up to which runs are noted, and the token that comes next."""

    def follow(self, reply: Reply, at: float) -> None:
        """Note what was drafted of the text that a reply has added since the last call.

        Another thread may add to it meanwhile.
        """
        if reply is not self._reply:
            self._reply, self._characters, self._token = reply, 0, 0
        text = reply.text  # first: the tokens of this text are then known
        begin = len(reply.request.partial)
        while self._characters < len(text) and reply.token_ends:  # a server tells no tokens
            start, end = self._characters, min(reply.token_ends[self._token], len(text))
            origin = reply.provenance[self._token]
            if origin not in _OWN and end > start:
                self._add(_Run(begin + start, begin + end, kind_of(origin), at))
            self._characters = end
            self._token += end == reply.token_ends[self._token]

    def _add(self, run: _Run) -> None:
        last = self._runs[-1] if self._runs else None
        if last is not None and (last.end, last.kind, last.at) == (run.start, run.kind, run.at):
            self._runs[-1] = _Run(last.start, run.end, run.kind, run.at)
        else:
            self._runs.append(run)

    @property
    def has_any(self) -> bool:
        return bool(self._runs)

    def fade(self, now: float) -> int | None:
        """Let runs of two seconds ago lose their hue; returns where the first one with a hue is.

        None if there is none, nor was any at the last call.
        """
        before = self._faded
        while self._faded < len(self._runs) and now - self._runs[self._faded].at >= _HALF_SECONDS:
            self._faded += 1
        return self._runs[before].start if before < len(self._runs) else None

    def between(self, start: int, end: int, now: float | None = None) -> list[Span]:
        """Hues within a range of the text: in full, or as they have faded at a time."""
        first = bisect_right(self._runs, start, key=attrgetter("end"))
        first = first if now is None else max(first, self._faded)
        last = bisect_left(self._runs, end, key=attrgetter("start"))
        return [Span(run.start, run.end, _style(run, now)) for run in self._runs[first:last]]


def _style(run: _Run, now: float | None) -> str:
    return run.kind.hue if now is None or now - run.at < _FULL_SECONDS else run.kind.fading


def hues_over(matches: Iterable[Match], drafted: Sequence[Span]) -> list[Span]:
    """Spans over rendered text whose words stand in a source of which parts were drafted."""
    spans: list[Span] = []
    before = -1
    for match in matches:
        place = bisect_right(drafted, match.source, key=attrgetter("end"))
        while place < len(drafted) and drafted[place].start < match.source + match.length:
            part = drafted[place]
            start = match.start + max(0, part.start - match.source)
            end = match.start + min(match.length, part.end - match.source)
            if place == before:  # blanks between its words belong to it too
                start = spans.pop().start
            spans.append(Span(start, end, part.style))
            before = place
            place += 1
    return spans
