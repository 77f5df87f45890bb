"""Markdown blocks that wrap their lines themselves: code, lists and tables."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from pygments.token import Token as Syntax
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.content import Content, Span
from textual.geometry import Size
from textual.highlight import HighlightTheme, highlight
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from app.printable import one_line, printable
from app.tui.widgets import LaidOutOnce

Hues = Mapping[int, Sequence[Span]]
"""Spans by index of a part of the text: a line of code, a cell of a table."""

CURSOR = "█"
_CURSOR_STYLE = "$text-muted not underline"


def is_hue(span: Span) -> bool:
    """Whether a span was laid over the text here."""
    style = span.style
    return isinstance(style, str) and style.startswith(("$drafted-", "$fading-"))


def without_hues(content: Content) -> Content:
    """The text as it was before hues and cursor were added."""
    spans = list(content.spans)
    if not spans:
        return content
    plain = content.plain
    if spans[-1].style == _CURSOR_STYLE:
        plain = plain[:-1]
        spans.pop()
    return Content(plain, [span for span in spans if not is_hue(span)])


def with_hues(content: Content, hues: Sequence[Span], *, has_cursor: bool = False) -> Content:
    """The text with spans laid over it, and the cursor of a growing answer behind it."""
    coloured = content.add_spans(hues) if hues else content
    return coloured.append_text(CURSOR, _CURSOR_STYLE) if has_cursor else coloured


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the screen: the part of a line of the text from start to end, after a prefix."""

    line: int
    start: int
    end: int
    prefix: str = ""


class LineBlock(LaidOutOnce, MarkdownBlock):
    """A block that is one widget, however long it is; its subclasses wrap the text."""

    DEFAULT_CSS: ClassVar[str] = """
    LineBlock { height: auto; margin: 0 0 1 0; background: transparent; overflow: hidden hidden; }
    """

    PREFIX_STYLE = "$border-blurred"

    def compose(self) -> ComposeResult:
        return ()

    @abstractmethod
    def rows(self, width: int) -> Sequence[Row]:
        """Rows of the screen for a width in cells."""

    @abstractmethod
    def row_content(self, row: Row) -> Content:
        """The text of a row, without its prefix."""

    @property
    @abstractmethod
    def plain(self) -> str:
        """The text as selections see it."""

    async def give_way_to(self, block: MarkdownBlock) -> None:
        """Mount a block of another kind in place of this one."""
        await self.remove()
        await self._markdown.mount(block)

    def changed(self, *, layout: bool) -> None:
        """Have the block painted anew; layout: its height may have changed."""
        if layout:
            self.clear_cached_dimensions()
        self.refresh(layout=layout)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        del viewport
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        del container, viewport
        return len(self.rows(width)) if width else 0

    def render_line(self, y: int) -> Strip:
        width, style = self.size.width, self.visual_style
        rows = self.rows(width)
        if y >= len(rows):
            return Strip.blank(width, style.rich_style)
        row = rows[y]
        content = self._selected(row, self.row_content(row))
        prefix = Content.styled(row.prefix, self.PREFIX_STYLE)
        parts = [
            Visual.to_strips(self, part, part.cell_length, 1, style, apply_selection=False)[0]
            for part in (prefix, content)
            if part.cell_length
        ]
        strip = Strip.join(part.apply_offsets(row.start, row.line) for part in parts)
        return strip.adjust_cell_length(width, style.rich_style)

    def _selected(self, row: Row, content: Content) -> Content:
        """The row's text with the selected part marked."""
        selection = self.text_selection
        span = None if selection is None else selection.get_span(row.line)
        if span is None:
            return content
        first, last = span
        start = max(0, first - row.start)
        end = len(content) if last == -1 else min(len(content), last - row.start)
        if start >= end:
            return content
        style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
        return content.stylize(style, start, end)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        return selection.extract(self.plain), "\n"


class WrappedRows:
    """Rows of the lines of a text that grows.

    wrap: makes the rows of a line, given its number and the width in cells.
    """

    def __init__(self, wrap: Callable[[int, int], Iterable[Row]]) -> None:
        self._wrap = wrap
        self._width = 0
        self._rows: list[Row] = []
        self._ends: list[int] = []
        """How many rows there are up to the end of each line."""

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, lines: int, width: int) -> Sequence[Row]:
        """Rows of a number of lines."""
        if width != self._width:
            self._width = width
            self.forget(0)
        for number in range(len(self._ends), lines):
            self._rows += self._wrap(number, width)
            self._ends.append(len(self._rows))
        return self._rows

    def forget(self, line: int) -> None:
        """Forget the rows from a line on."""
        del self._ends[line:]
        del self._rows[self._ends[-1] if self._ends else 0 :]


def end_of_row(line: str, start: int, width: int) -> int:
    """Where a row that begins at start ends: after a space if there is one, else anywhere."""
    end = start + max(1, width)
    if end >= len(line) and line.isascii():
        return len(line)
    while end > start + 1 and cell_len(line[start:end]) > width:
        end -= 1
    if end >= len(line):
        return len(line)
    indented = len(line) - len(line.lstrip())
    space = line.rfind(" ", max(start, indented) + 1, end + 1)
    return end if space < 0 else space + 1


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
        self._lines = _lines_of_code(code)
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
        kept = _whole_lines_in_common(self.code, block.code) if self.lexer == block.lexer else 0
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


def _lines_of_code(code: str) -> list[str]:
    return printable(code).expandtabs(_TAB).split("\n")


def _whole_lines_in_common(old: str, new: str) -> int:
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


BULLET_LIST, ORDERED_LIST = "bullet_list", "ordered_list"
"""Types of the tokens that stand for whole lists."""

_LISTS = (f"{BULLET_LIST}_open", f"{ORDERED_LIST}_open")
_PLAIN = {
    "inline",
    *(
        f"{name}_{side}"
        for name in (BULLET_LIST, ORDERED_LIST, "list_item", "paragraph")
        for side in ("open", "close")
    ),
}


@dataclass(frozen=True, slots=True)
class ListLine:
    """A paragraph of a list; prefix: the bullets of the items it begins, and its indent."""

    prefix: str
    source: Token | None

    def is_same(self, other: "ListLine") -> bool:
        """Whether another line looks the same."""
        return self.prefix == other.prefix and self.text == other.text

    @property
    def text(self) -> str:
        """The paragraph as it was written."""
        return self.source.content if self.source is not None else ""


def folded_lists(tokens: Sequence[Token]) -> Iterator[Token]:
    """Replace the tokens of each list of plain text by one, which holds its lines."""
    marks: list[bool] = []
    """Whether each item that is open has a bullet."""
    place = 0
    while place < len(tokens):
        token, end = tokens[place], _end_of_plain_list(tokens, place)
        if end > place:
            yield _folded(tokens[place:end], sum(marks))
            place = end
            continue
        if token.type == "list_item_open":
            marks.append(not token.info)
        elif token.type == "list_item_close":
            marks.pop()
        yield token
        place += 1


def _end_of_plain_list(tokens: Sequence[Token], start: int) -> int:
    """Where a list that begins at a token ends, if it holds nothing but text, else 0."""
    if tokens[start].type not in _LISTS:
        return 0
    for place in range(start + 1, len(tokens)):
        token = tokens[place]
        if token.type not in _PLAIN:
            return 0
        if token.level == tokens[start].level and token.nesting < 0:
            return place + 1
    return 0


def _folded(tokens: Sequence[Token], depth: int) -> Token:
    """A token for a list. depth: how many items with bullets it stands in."""
    node = SyntaxTreeNode(tokens, create_root=False)
    lines = [*_lines(node, depth)]
    first = tokens[0]
    return Token(node.type, "", 0, map=first.map, level=first.level, meta={"lines": lines})


def _lines(node: SyntaxTreeNode, depth: int) -> Iterator[ListLine]:
    for bullet, item in zip(_bullets(node, depth), node.children, strict=True):
        prefix = bullet
        for block in item.children:
            for line in _lines_of_block(block, depth + (node.type == BULLET_LIST)):
                yield ListLine(prefix + line.prefix, line.source)
                prefix = _blank(bullet)
        if not item.children:
            yield ListLine(prefix, None)


def _lines_of_block(block: SyntaxTreeNode, depth: int) -> Iterator[ListLine]:
    if block.type == "paragraph":
        yield ListLine("", block.children[0].token)
    else:
        yield from _lines(block, depth)


def _bullets(node: SyntaxTreeNode, depth: int) -> Sequence[str]:
    """What stands before each item."""
    if node.type == BULLET_LIST:
        return [Markdown.BULLETS[depth % len(Markdown.BULLETS)]] * len(node.children)
    return numbers(node.children[0].info, len(node.children))


def numbers(first: str, count: int) -> Sequence[str]:
    """Numbers of the items of a list; the first item sets the start."""
    start = int(first) if first.isdecimal() else 1
    width = len(f"{start + count - 1}. ")
    return [f"{number}. ".rjust(width) for number in range(start, start + count)]


def _blank(text: str) -> str:
    return " " * cell_len(text)


class ListBlock(LineBlock):
    """A list in one widget."""

    PREFIX_STYLE = "$text-muted"

    def __init__(self, markdown: Markdown, token: Token) -> None:
        super().__init__(markdown, token)  # pyright: ignore[reportUnknownMemberType]
        self.lines: list[ListLine] = token.meta["lines"]
        self._texts: list[Content] = []
        self._rows = WrappedRows(self._wrapped)
        self._hues: Hues = {}
        self._has_cursor = False

    @property
    def texts(self) -> Sequence[Content]:
        """The text of each line, as it was parsed."""
        for line in self.lines[len(self._texts) :]:
            content = Content("") if line.source is None else self._token_to_content(line.source)
            self._texts.append(content.expand_tabs())
        return self._texts

    @property
    def plain(self) -> str:
        return "\n".join(text.plain for text in self.texts)

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if not isinstance(block, ListBlock) or block.name != self.name:
            await self.give_way_to(block)
            return
        kept = _lines_in_common(self.lines, block.lines)
        changed = min(kept, len(self.lines) - 1)  # the last one may have had the cursor
        self.lines, self._hues = block.lines, {}
        del self._texts[kept:]
        self._rewrap(changed)

    def set_hues(self, hues: Hues, *, has_cursor: bool = False) -> None:
        """Colour parts of lines; has_cursor: a cursor stands behind the last one."""
        if has_cursor != self._has_cursor:
            self._hues, self._has_cursor = hues, has_cursor
            self._rewrap(len(self.lines) - 1)
        elif hues != self._hues:
            self._hues = hues
            self.changed(layout=False)

    # Rows

    def rows(self, width: int) -> Sequence[Row]:
        return self._rows.of(len(self.lines), width)

    def row_content(self, row: Row) -> Content:
        text = with_hues(
            self.texts[row.line],
            self._hues.get(row.line, ()),
            has_cursor=self._ends_in_cursor(row.line),
        )
        return text[row.start : row.end]

    def _ends_in_cursor(self, number: int) -> bool:
        return self._has_cursor and number == len(self.lines) - 1

    def _rewrap(self, first: int) -> None:
        """Wrap the lines from one on anew; the screen needs no layout if the rows are as many."""
        height = len(self._rows)
        self._rows.forget(first)
        width = self.content_size.width
        self.changed(layout=not width or len(self.rows(width)) != height)

    def _wrapped(self, number: int, width: int) -> Iterator[Row]:
        text = self.texts[number].plain + (CURSOR if self._ends_in_cursor(number) else "")
        prefix = self.lines[number].prefix
        room = max(1, width - cell_len(prefix))
        begin = 0
        for part in text.split("\n"):
            start = 0
            while start < len(part) or not start:
                end = end_of_row(part, start, room)
                yield Row(number, begin + start, begin + end, prefix)
                prefix = _blank(prefix)
                start = end or 1
            begin += len(part) + 1


def _lines_in_common(old: Sequence[ListLine], new: Sequence[ListLine]) -> int:
    """How many lines, from the first, two lists share."""
    count = 0
    for before, after in zip(old, new, strict=False):
        if not before.is_same(after):
            break
        count += 1
    return count


_GAP = 2
_NARROWEST = 5
"""Least width of a column that has to wrap, in cells."""

_Cells = Sequence[Content]


TABLE = "table"
"""Type of the tokens that stand for whole tables."""

_Sources = list[list[Token]]


def folded_tables(tokens: Iterable[Token]) -> Iterator[Token]:
    """Replace the tokens of each table by one, which holds those of its cells.

    Textual makes a widget of each cell whenever a table grows.
    """
    table: Token | None = None
    for token in tokens:
        if token.type == "table_open":
            rows: _Sources = []
            table = Token(TABLE, "", 0, map=token.map, level=token.level, meta={"rows": rows})
        elif token.type == "table_close" and table is not None:
            yield table
            table = None
        elif table is None:
            yield token
        elif token.type == "tr_open":
            table.meta["rows"].append([])
        elif token.type == "inline":
            table.meta["rows"][-1].append(token)


class TableBlock(LineBlock):
    """A table in one widget, with a rule below its header."""

    def __init__(self, markdown: Markdown, token: Token) -> None:
        super().__init__(markdown, token)  # pyright: ignore[reportUnknownMemberType]
        self.sources: _Sources = token.meta["rows"]
        """Tokens of the cells, row by row, from the header on."""
        self._cells: list[_Cells] = []
        self._hues: Hues = {}
        self._width = 0
        self._widths: tuple[int, ...] = ()
        self._screen: list[Content] = []
        self._screen_rows: list[Row] = []
        self._wrapped: dict[int, list[Content]] = {}
        """Screen lines of each row of the table, while neither it nor the columns change."""

    @property
    def cells(self) -> list[_Cells]:
        """Header and rows."""
        for row in self.sources[len(self._cells) :]:
            self._cells.append([self._token_to_content(token) for token in row])
        return self._cells

    @property
    def plain(self) -> str:
        return "\n".join(line.plain for line in self._screen)

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if not isinstance(block, TableBlock):
            await self.give_way_to(block)
            return
        old, self.sources = self.sources, block.sources
        kept = _rows_in_common(old, self.sources)
        del self._cells[kept:]
        for number in [number for number in self._wrapped if number >= kept]:
            del self._wrapped[number]
        self._set_hues({})
        self._width = 0
        self.changed(layout=True)

    def set_hues(self, hues: Hues) -> None:
        """Colour parts of cells; they are counted row by row, from the header's first."""
        if hues != self._hues:
            self._set_hues(hues)
            self._width = 0
            self.changed(layout=False)

    def _set_hues(self, hues: Hues) -> None:
        columns = len(self.cells[0]) if self.cells else 1
        for cell in {*self._hues, *hues}:
            self._wrapped.pop(cell // max(1, columns), None)
        self._hues = hues

    # Rows

    def rows(self, width: int) -> Sequence[Row]:
        if width != self._width:
            self._width = width
            self._screen = self._laid_out(width)
            self._screen_rows = [Row(line, 0, len(text)) for line, text in enumerate(self._screen)]
        return self._screen_rows

    def row_content(self, row: Row) -> Content:
        return self._screen[row.line]

    def _laid_out(self, width: int) -> list[Content]:
        cells = self.cells
        if not cells:
            return []
        widths = _widths(cells, width)
        if widths != self._widths:
            self._wrapped.clear()
            self._widths = widths
        for number in range(len(cells)):
            if number not in self._wrapped:
                self._wrapped[number] = (
                    self._columns(number, widths) if widths else self._listed(number, width)
                )
        header, *rows = (self._wrapped[number] for number in range(len(cells)))
        if widths:
            rule = (" " * _GAP).join("─" * column for column in widths)
            return [
                *header,
                Content.styled(rule, "$border-blurred"),
                *(line for row in rows for line in row),
            ]
        return [line for row in rows or [header] for line in row]

    def _coloured(self, number: int) -> list[Content]:
        """Cells of a row with their hues."""
        columns = len(self.cells[0])
        return [
            with_hues(cell, self._hues.get(number * columns + column, ()))
            for column, cell in enumerate(self.cells[number])
        ]

    def _columns(self, number: int, widths: Sequence[int]) -> list[Content]:
        """Screen lines of a row: its cells beside each other."""
        style = "bold" if number == 0 else ""
        wrapped = [
            [line.rstrip() for line in cell.stylize(style).wrap(width)]
            for cell, width in zip(self._coloured(number), widths, strict=False)
        ]
        gap, empty = Content(" " * _GAP), Content("")
        return [
            gap.join(
                part.pad_right(max(0, width - part.cell_length))
                for part, width in zip(parts, widths, strict=False)
            )
            for parts in zip_longest(*wrapped, fillvalue=empty)
        ]

    def _listed(self, number: int, width: int) -> list[Content]:
        """Screen lines of a row without room for columns: each cell below its column's header."""
        lines: list[Content] = []
        for header, cell in zip_longest(
            self._coloured(0), self._coloured(number) if number else (), fillvalue=Content("")
        ):
            lines += header.stylize("bold").wrap(width)
            if number:
                lines += cell.wrap(width)
        return [*lines, Content("")] if number else lines


def _rows_in_common(old: _Sources, new: _Sources) -> int:
    """How many rows, from the first, two tables share."""
    count = 0
    for before, after in zip(old, new, strict=False):
        if [token.content for token in before] != [token.content for token in after]:
            break
        count += 1
    return count


def _widths(cells: Sequence[_Cells], width: int) -> tuple[int, ...]:
    """Widths of the columns in cells; empty if there is no room for all of them."""
    natural = [
        max((row[column].cell_length for row in cells if column < len(row)), default=1) or 1
        for column in range(len(cells[0]))
    ]
    room = width - _GAP * (len(natural) - 1)
    if sum(natural) <= room:
        return tuple(natural)
    if room < sum(min(_NARROWEST, wanted) for wanted in natural):
        return ()
    # Narrow columns keep their width; the others share what is left.
    shares: dict[int, int] = {}
    left = room
    for count, column in enumerate(sorted(range(len(natural)), key=natural.__getitem__)):
        shares[column] = min(natural[column], left // (len(natural) - count))
        left -= shares[column]
    return tuple(shares[column] for column in range(len(natural)))
