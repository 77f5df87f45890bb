"""Tables that fit the width: cells wrap, and where there is no room for columns they are listed."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from markdown_it.token import Token
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock

from app.tui.answer_text.hue_spans import Hues, with_hues
from app.tui.answer_text.line_block import LineBlock, Row

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
