"""Code that wraps: long lines go on below, after a mark that is not copied."""

from collections.abc import Iterator, Sequence

from markdown_it.token import Token
from pygments.token import Token as Syntax
from textual.content import Content
from textual.highlight import HighlightTheme, highlight
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from app.printable import one_line, printable
from app.tui.answer_text.hue_spans import CURSOR, Hues, with_hues
from app.tui.answer_text.line_block import LineBlock, Row
from app.tui.answer_text.wrapped_rows import WrappedRows, end_of_row

_RULE = "┃ "
_CONTINUED = "┃ ↪ "
_NARROW = 8
"""Widths below this have no room for the mark, those below half of it none for the rule."""

_TAB = 4

_CHUNK_LINES = 64
"""Lines of growing code that are highlighted together, so that each is highlighted a few times."""

_MOST_LINES = 2000
"""Longest code that is highlighted as a whole."""


class _Greys(HighlightTheme):
    """Highlighting by weight: hues are for drafters."""

    STYLES = {  # noqa: RUF012  # as Textual declares it
        Syntax.Comment: "$text-muted italic",
        Syntax.Keyword: "bold",
        Syntax.Name.Class: "bold",
        Syntax.Name.Function: "bold",
        Syntax.Name.Tag: "bold",
        Syntax.Operator.Word: "bold",
        Syntax.Literal.String: "$text-muted",
        Syntax.Generic.Deleted: "strike",
        Syntax.Generic.Inserted: "bold",
    }


class CodeBlock(LineBlock, MarkdownFence):
    """Code between a rule and the edge, with its language on the first row."""

    def __init__(self, markdown: Markdown, token: Token, code: str) -> None:
        # Past MarkdownFence, which highlights all of the code whenever some is appended.
        MarkdownBlock.__init__(self, markdown, token)  # pyright: ignore[reportUnknownMemberType]
        self.code = code
        self.lexer = token.info.split()[0] if token.info.strip() else ""
        self.is_fence = token.type == "fence"
        self.auto_links = False
        self._lines = _lines(code)
        self._highlighted: list[Content] = []
        self._hues: Hues = {}
        self._rows = WrappedRows(self._wrapped)
        self._has_grown = False
        self._has_cursor = False

    @property
    def plain(self) -> str:
        return "\n".join(self._lines)

    @property
    def lines(self) -> Sequence[str]:
        """The code as it is shown, with spaces for tabs."""
        return self._lines

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if not isinstance(block, CodeBlock):
            await self.give_way_to(block)
            return
        kept = _lines_in_common(self.code, block.code) if self.lexer == block.lexer else 0
        self.code, self.lexer, self.is_fence = block.code, block.lexer, block.is_fence
        self._lines = [*block.lines]
        self._highlighted = self._highlighted[: kept - kept % _CHUNK_LINES]
        self._hues = {}
        self._has_grown = True
        self._rows.forget(kept)
        self.changed(layout=True)

    def set_hues(self, hues: Hues, *, has_cursor: bool = False) -> None:
        """Colour parts of lines; has_cursor: a cursor stands behind the last one."""
        if hues != self._hues or has_cursor != self._has_cursor:
            self._hues, self._has_cursor = hues, has_cursor
            self.changed(layout=False)

    def settle(self) -> None:
        """Highlight code that has grown as a whole."""
        if self._has_grown and len(self._lines) > _CHUNK_LINES:
            self._has_grown = False
            self._highlighted = []
            self.changed(layout=False)

    def notify_style_update(self) -> None:
        MarkdownBlock.notify_style_update(self)

    # Rows

    def rows(self, width: int) -> Sequence[Row]:
        return self._rows.of(len(self._lines), width)

    def _wrapped(self, number: int, width: int) -> Iterator[Row]:
        if number == 0 and self.lexer:
            yield Row(-1, 0, 0, _RULE)
        yield from _wrapped(number, self._lines[number], width)

    def row_content(self, row: Row) -> Content:
        if row.line < 0:
            return Content.styled(one_line(self.lexer), "$text-muted")
        line = with_hues(self._line(row.line), self._hues.get(row.line, ()))
        content = line[row.start : row.end]
        if self._has_cursor and row.line == len(self._lines) - 1 and row.end == len(line):
            return content + CURSOR
        return content

    def _line(self, number: int) -> Content:
        while number >= len(self._highlighted):
            first = len(self._highlighted)
            whole = not self._has_grown and len(self._lines) <= _MOST_LINES
            last = len(self._lines) if whole else first + _CHUNK_LINES
            self._highlighted += _highlight(self._lines[first:last], self.lexer)
        return self._highlighted[number]


def _lines(code: str) -> list[str]:
    return printable(code).expandtabs(_TAB).split("\n")


def _lines_in_common(old: str, new: str) -> int:
    """How many whole lines of code, from the first, are the same before and after it has grown."""
    whole = old[: old.rfind("\n") + 1]
    return whole.count("\n") if new.startswith(whole) else 0


def _highlight(lines: list[str], language: str) -> list[Content]:
    if not language:
        return [Content(line) for line in lines]
    styled = highlight("\n".join(lines), language=language, theme=_Greys)
    contents = styled.split("\n", allow_blank=True)
    if [len(content) for content in contents] == [len(line) for line in lines]:
        return list(contents)
    return [Content(line) for line in lines]  # other line breaks than ours


def _wrapped(number: int, line: str, width: int) -> Iterator[Row]:
    """Rows of one line."""
    first = _RULE if width >= _NARROW // 2 else ""
    start, prefix, continued = 0, first, _CONTINUED if width >= _NARROW else first
    while True:
        end = end_of_row(line, start, width - len(prefix))
        yield Row(number, start, end, prefix)
        if end >= len(line):
            return
        start, prefix = end, continued
