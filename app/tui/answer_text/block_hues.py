"""Lays hues over rendered Markdown: over each of its texts the spans of the source it came from."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import cast

from textual.content import Content, Span
from textual.widget import Widget
from textual.widgets.markdown import MarkdownBlock

# Not exported by textual.widgets.markdown; textual is pinned exactly.
from textual.widgets._markdown import MarkdownHeader, MarkdownParagraph  # isort: skip

from app.tui.answer_text.alignment import Alignment
from app.tui.answer_text.code_block import CodeBlock
from app.tui.answer_text.compact_markdown import CompactMarkdown
from app.tui.answer_text.drafted_runs import Coloured
from app.tui.answer_text.hue_spans import Hues, with_hues, without_hues
from app.tui.answer_text.list_block import ListBlock
from app.tui.answer_text.table_block import TableBlock

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
