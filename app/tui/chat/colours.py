"""Which parts of an answer drafters supplied, and their hues over the rendered text."""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import cast

from textual.content import Content, Span
from textual.widget import Widget
from textual.widgets.markdown import MarkdownBlock

from app.engine.answer import Piece
from app.tui.look import Kind, kind_of
from decoding.events import Origin

from textual.widgets._markdown import MarkdownHeader, MarkdownParagraph  # isort: skip
from app.tui.chat.blocks import CodeBlock, Hues, ListBlock, TableBlock, with_hues, without_hues
from app.tui.chat.markdown import CompactMarkdown

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


_FULL_SECONDS = 1.0
_HALF_SECONDS = 2.0

_OWN = frozenset(Origin)
"""Origins of tokens that the model supplied itself."""


@dataclass(frozen=True, slots=True)
class Run:
    """Text from start to end that a drafter supplied; at: when it was shown, in seconds."""

    start: int
    end: int
    kind: Kind
    at: float


@dataclass(frozen=True, slots=True)
class Coloured:
    """Parts of an answer that have a hue, in order and without overlaps."""

    parts: Sequence[Span]

    def between(self, start: int, end: int) -> Sequence[Span]:
        """Parts that overlap a range."""
        first = bisect_right(self.parts, start, key=attrgetter("end"))
        last = bisect_left(self.parts, end, key=attrgetter("start"))
        return self.parts[first:last]


class DraftedRuns:
    """Drafted parts of an answer, in order."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._faded = 0
        """How many runs, from the first, have no hue any more."""

    def add(self, pieces: Iterable[Piece], start: int, at: float) -> None:
        """Note the drafted ones of the pieces that follow a position of the text."""
        for piece in pieces:
            end = start + len(piece.text)
            if piece.origin not in _OWN and piece.text:
                self._add(Run(start, end, kind_of(piece.origin), at))
            start = end

    def _add(self, run: Run) -> None:
        last = self._runs[-1] if self._runs else None
        if last is not None and (last.end, last.kind, last.at) == (run.start, run.kind, run.at):
            self._runs[-1] = Run(last.start, run.end, run.kind, run.at)
        else:
            self._runs.append(run)

    def fresh(self, now: float) -> Coloured:
        """What is coloured at a time: for a second fully, for another one half."""
        while self._faded < len(self._runs) and now - self._runs[self._faded].at >= _HALF_SECONDS:
            self._faded += 1
        return Coloured(
            [Span(run.start, run.end, _style(run, now)) for run in self._runs[self._faded :]]
        )

    def all(self, start: int = 0) -> Coloured:
        """Everything that was drafted from a position on, in its full hue."""
        first = bisect_right(self._runs, start, key=attrgetter("end"))
        return Coloured([Span(run.start, run.end, run.kind.hue) for run in self._runs[first:]])


def _style(run: Run, now: float) -> str:
    return run.kind.hue if now - run.at < _FULL_SECONDS else run.kind.fading


# Not exported by textual.widgets.markdown; textual is pinned exactly.


TextLeaf = MarkdownParagraph | MarkdownHeader
Leaf = TextLeaf | CodeBlock | ListBlock | TableBlock
_LEAVES = (MarkdownParagraph, MarkdownHeader, CodeBlock, ListBlock, TableBlock)


class BlockHues:
    """Hues of a Markdown document whose source is a part of an answer."""

    def __init__(self, markdown: CompactMarkdown, offset: int) -> None:
        self.offset = offset
        """Where the document begins in the answer."""
        self._markdown = markdown
        self._painted: frozenset[Leaf] = frozenset()

    @property
    def is_painted(self) -> bool:
        """Whether anything has a hue, or the cursor."""
        return bool(self._painted)

    def lay(self, coloured: Coloured, begin: int, *, has_cursor: bool) -> None:
        """Show these hues and no others.

        begin: where the answer begins in what is coloured. has_cursor: a cursor ends the document.
        """
        wanted = self._wanted(coloured, begin + self.offset)
        last = _last_leaf(self._markdown) if has_cursor else None
        now_painted = frozenset(wanted if last is None else (*wanted, last))
        for leaf in self._painted | now_painted:
            if leaf.is_attached:
                _show(leaf, wanted.get(leaf, {}), has_cursor=leaf is last)
        self._painted = now_painted

    def _wanted(self, coloured: Coloured, offset: int) -> dict[Leaf, Hues]:
        source = self._markdown.source
        wanted: dict[Leaf, Hues] = {}
        if not coloured.between(offset, offset + len(source)):
            return wanted
        starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
        for block in self._markdown.children:
            if isinstance(block, MarkdownBlock):
                first, last = (min(line, len(starts) - 1) for line in block.source_range)
                if coloured.between(offset + starts[first], offset + starts[last]):
                    alignment = Alignment(source, starts[first])
                    wanted |= _hues_of(block, alignment, coloured, offset, starts[first:last])
        return wanted


def _hues_of(
    block: MarkdownBlock,
    alignment: Alignment,
    coloured: Coloured,
    offset: int,
    starts: Sequence[int],
) -> dict[Leaf, Hues]:
    """Hues of the leaves of a block. starts: where its lines begin in the source."""
    hues_of: dict[Leaf, Hues] = {}
    if isinstance(block, CodeBlock):
        if hues := dict(_code_hues(block, alignment, coloured, offset, starts)):
            hues_of[block] = hues
        return hues_of
    for leaf in _leaves(block):
        hues = {
            index: spans
            for index, text in _texts(leaf)
            if (spans := _spans(text, alignment, coloured, offset))
        }
        if hues:
            hues_of[leaf] = hues
    return hues_of


def _code_hues(
    block: CodeBlock,
    alignment: Alignment,
    coloured: Coloured,
    offset: int,
    starts: Sequence[int],
) -> Iterator[tuple[int, list[Span]]]:
    """Hues by line of code: each is a line of the source, so that long code costs little."""
    starts = starts[1:] if block.is_fence else starts
    if not coloured.parts or not starts:
        return
    first = max(0, bisect_right(starts, coloured.parts[0].start - offset) - 1)
    for number in range(first, min(len(starts), len(block.lines))):
        alignment.position = starts[number]
        if spans := _spans(block.lines[number], alignment, coloured, offset):
            yield number, spans


def _leaves(block: Widget) -> Iterator[Leaf]:
    """Widgets that show text, in its order."""
    if isinstance(block, _LEAVES):
        yield block
        return
    for child in block.children:
        yield from _leaves(child)


def _last_leaf(block: Widget) -> Leaf | None:
    """The widget that shows the end of the text, unless it has none."""
    while not isinstance(block, _LEAVES):
        if not block.children:
            return None
        block = block.children[-1]
    return block


def _texts(leaf: Leaf) -> Iterator[tuple[int, str]]:
    """The texts of a leaf with their indices."""
    if isinstance(leaf, CodeBlock):
        yield from enumerate(leaf.lines)
    elif isinstance(leaf, ListBlock):
        yield from enumerate(text.plain for text in leaf.texts)
    elif isinstance(leaf, TableBlock):
        yield from enumerate(cell.plain for row in leaf.cells for cell in row)
    else:
        yield 0, without_hues(_content(leaf)).plain


def _content(leaf: TextLeaf) -> Content:
    return cast("Content", leaf.content)


def _spans(text: str, alignment: Alignment, coloured: Coloured, offset: int) -> list[Span]:
    """Spans of hue of a text that the alignment has come to."""
    spans: list[Span] = []
    before: Span | None = None
    for match in alignment.follow(text):
        source = offset + match.source
        for part in coloured.between(source, source + match.length):
            start = match.start + max(0, part.start - source)
            end = match.start + min(match.length, part.end - source)
            if part is before:  # blanks between its words belong to it too
                start = spans.pop().start
            spans.append(Span(start, end, part.style))
            before = part
    return spans


def _show(leaf: Leaf, hues: Hues, *, has_cursor: bool) -> None:
    """Show a leaf with these hues alone."""
    if isinstance(leaf, CodeBlock | ListBlock):
        leaf.set_hues(hues, has_cursor=has_cursor)
    elif isinstance(leaf, TableBlock):
        leaf.set_hues(hues)
    else:
        shown = _content(leaf)
        content = with_hues(without_hues(shown), hues.get(0, ()), has_cursor=has_cursor)
        if not shown.is_same(content):
            leaf.update(content, layout=len(shown) != len(content))
