"""Markdown as lines of text, each of which wraps on its own; it is read on as it grows."""

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import NamedTuple

from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from pygments.token import Token as Syntax
from rich.cells import cell_len
from textual.content import Content, Span
from textual.highlight import HighlightTheme, highlight
from textual.style import Style
from textual.widgets import Markdown

from app.chat.sources import KNOWN, NUMBER, PARSER
from app.printable import STAND_INS, one_line, printable
from app.tui.chat.colours import Alignment, Match

CURSOR = Content.styled("█", "$text-muted not underline")

_SHOWN = {**STAND_INS, ord("\r"): " "}
"""Replacements of control characters; none changes the length of the text."""

_NUMBER = re.compile(r"[ \t]*\d{1,9}\Z")
"""A line that may become a list item; as a paragraph it would end the list that it belongs to."""

_LONG_LIST = 24
"""Lines of a list from which only its last item is read again when it grows."""

_RULE, _CONTINUED = "┃ ", "┃ ↪ "
_NARROW = 8
"""Widths below this have no room for the mark, those below half of it none for the rule."""

_TAB = 4
_CHUNK = 64
"""Lines of growing code that are highlighted together, so that each is highlighted a few times."""

_MOST_LINES = 2000
"""Longest code that is highlighted as a whole."""

_GAP = 2
_NARROWEST = 5
"""Least width of a column that has to wrap, in cells."""

_EMPTY = Content("")
_MUTED, _RULES = "$text-muted", "$border-blurred"
_LISTS = ("bullet_list", "ordered_list")
_STYLES = {"em": "italic", "strong": "bold", "s": "strike"}
_HEADINGS = {"h1": "bold underline", "h2": "bold"}
_LOWER_HEADING = "bold italic"
Hues = Sequence[Sequence[Span]] | None
"""Spans laid over each text of a line; None where no text of the answer has any."""


class Row(NamedTuple):
    """A part of a line's text after a prefix; of a table, start tells which of its rows."""

    start: int
    end: int
    prefix: Content


@dataclass(eq=False)
class Line:
    """Text that wraps. head: stands before its first row, hang before the others.

    start, end: where it stands in the Markdown.
    """

    head: Content
    hang: Content
    start: int
    end: int

    code: str | None = None
    """The code that it is a line of."""
    is_joined = True
    """Whether its rows are copied as one line."""

    _matches: Sequence[Sequence[Match]] | None = None

    @property
    @abstractmethod
    def contents(self) -> Sequence[Content]:
        """The texts with their markup; none of code."""

    @property
    def texts(self) -> Sequence[str]:
        """What hues are laid over."""
        return [text.plain for text in self.contents]

    def matches(self, source: str) -> Sequence[Sequence[Match]]:
        if self._matches is None:
            walk = Alignment(source, self.start)
            self._matches = [[*walk.follow(text)] for text in self.texts]
        return self._matches

    @abstractmethod
    def rows(self, width: int, *, has_cursor: bool) -> Iterator[Row]:
        """Rows of the screen; a cursor stands behind the last line of a growing text."""

    @abstractmethod
    def content(self, row: Row, hues: Hues, *, has_cursor: bool) -> Content:
        """What stands in a row after its prefix."""

    @property
    def key(self) -> tuple[object, ...]:
        """What another line must have in common with it to look the same in the same place."""
        spans = [text.spans for text in self.contents]
        return type(self), self.start, self.head.plain, self.hang.plain, *self.texts, spans


@dataclass(eq=False)
class TextLine(Line):
    text: Content = _EMPTY

    @property
    def contents(self) -> Sequence[Content]:
        return (self.text,)

    def rows(self, width: int, *, has_cursor: bool) -> Iterator[Row]:
        begin, prefix = 0, self.head
        for part in f"{self.text.plain}{CURSOR.plain * has_cursor}".split("\n"):
            start = 0
            while start < len(part) or not start:
                end = _end_of_row(part, start, width - prefix.cell_length)
                yield Row(begin + start, begin + end, prefix)
                start, prefix = end or 1, self.hang
            begin += len(part) + 1

    def content(self, row: Row, hues: Hues, *, has_cursor: bool) -> Content:
        text = self.text.add_spans([*hues[0]]) if hues else self.text
        return (text + CURSOR if has_cursor else text)[row.start : row.end]


class _Code:
    """number: its place among the code blocks of the text, from 1 on."""

    def __init__(self, text: str, language: str, number: int, *, grows: bool) -> None:
        self.text, self.language, self.number = text, language, number
        self.lines = printable(text).expandtabs(_TAB).split("\n")
        is_whole = not grows and len(self.lines) <= _MOST_LINES
        self._chunk = len(self.lines) if is_whole else _CHUNK
        self._highlighted: dict[tuple[int, bool], list[Content]] = {}

    @property
    def label(self) -> str:
        """The language, and how a block after the first is copied."""
        copied = f"/code {self.number}" if self.number > 1 else ""
        return " · ".join(filter(None, [one_line(self.language), copied]))

    def highlighted(self, number: int, *, in_colour: bool) -> Content:
        chunk, place = divmod(number, self._chunk)
        key = chunk, in_colour
        if key not in self._highlighted:
            lines = self.lines[chunk * self._chunk : (chunk + 1) * self._chunk]
            theme = _Colours if in_colour else _Greys
            self._highlighted[key] = _highlighted(lines, self.language, theme)
        return self._highlighted[key][place]


class _Greys(HighlightTheme):
    """Highlighting by weight: while text is new, hues are for drafters."""

    STYLES = {  # noqa: RUF012  # as Textual declares it
        Syntax.Comment: f"{_MUTED} italic",
        Syntax.Keyword: "bold",
        Syntax.Name.Class: "bold",
        Syntax.Name.Function: "bold",
        Syntax.Name.Tag: "bold",
        Syntax.Operator.Word: "bold",
        Syntax.Literal.String: _MUTED,
        Syntax.Generic.Deleted: "strike",
        Syntax.Generic.Inserted: "bold",
    }


class _Colours(_Greys):
    STYLES = {  # noqa: RUF012
        **_Greys.STYLES,
        Syntax.Keyword: "$text-accent",
        Syntax.Literal.Number: "$text-error",
        Syntax.Literal.String: "$text-warning",
        Syntax.Name.Builtin: "$text-accent",
        Syntax.Name.Decorator: "$text-accent",
        Syntax.Name.Tag: "$text-accent",
        Syntax.Operator.Word: "$text-accent",
    }


def _highlighted(lines: list[str], language: str, theme: type[HighlightTheme]) -> list[Content]:
    if language:
        styled = highlight("\n".join(lines), language=language, theme=theme)
        contents = styled.split("\n", allow_blank=True)
        if [len(content) for content in contents] == [len(line) for line in lines]:
            return list(contents)
    return [Content(line) for line in lines]  # also where Pygments breaks lines elsewhere


class CodeLine(TextLine):
    """A line of code behind a rule; the language stands above the first one."""

    def __init__(
        self, code: _Code, number: int, head: Content, hang: Content, start: int, end: int
    ) -> None:
        Line.__init__(self, head, hang, start, end, code.text)
        self._code, self._number = code, number

    def content(self, row: Row, hues: Hues, *, has_cursor: bool) -> Content:
        self.text = self._code.highlighted(self._number, in_colour=hues is None)
        return super().content(row, hues, has_cursor=has_cursor)

    @property
    def is_first(self) -> bool:
        return self._number == 0

    @property
    def texts(self) -> Sequence[str]:
        return (self._code.lines[self._number],)

    @property
    def contents(self) -> Sequence[Content]:
        return ()

    def rows(self, width: int, *, has_cursor: bool) -> Iterator[Row]:
        room = width - self.head.cell_length
        rule = Content.styled(_RULE if room >= _NARROW // 2 else "", _RULES)
        continued = Content.styled(_CONTINUED, _RULES) if room >= _NARROW else rule
        head = self.head
        if self.is_first and self._code.label:
            label = Content.styled(self._code.label, _MUTED)
            yield Row(0, 0, Content.assemble(head, rule, label))
            head = self.hang
        line, start, prefix = self.texts[0], 0, head + rule
        while start < len(line) or not start:
            end = _end_of_row(line, start, width - prefix.cell_length)
            is_last = has_cursor and end >= len(line)
            yield Row(start, end + is_last, prefix)
            start, prefix = end or 1, self.hang + continued

    @property
    def key(self) -> tuple[object, ...]:
        return *super().key, self._number, self._code.label


@dataclass(eq=False)
class RuleLine(TextLine):
    def rows(self, width: int, *, has_cursor: bool) -> Iterator[Row]:
        del has_cursor
        yield Row(0, max(1, width - self.head.cell_length), self.head)

    def content(self, row: Row, hues: Hues, *, has_cursor: bool) -> Content:
        del hues, has_cursor
        return Content.styled("─" * row.end, _RULES)


class _Table:
    """What the rows of a table share: its header, and the width that each column wants.

    aligned: where the text of each column stands, such as "right".
    """

    def __init__(self, rows: Sequence[Sequence[Content]], aligned: Sequence[str]) -> None:
        self.aligned = aligned
        self.header, self.has_body = rows[0], len(rows) > 1
        self.natural = [
            max((row[column].cell_length for row in rows if column < len(row)), default=1) or 1
            for column in range(len(rows[0]))
        ]

    def widths(self, width: int) -> Sequence[int]:
        """Widths of the columns in cells; empty if there is no room for all of them."""
        natural = self.natural
        room = width - _GAP * (len(natural) - 1)
        if sum(natural) <= room:
            return natural
        if room < sum(min(_NARROWEST, wanted) for wanted in natural):
            return ()
        # Narrow columns keep their width; the others share what is left.
        shares: dict[int, int] = {}
        for count, column in enumerate(sorted(range(len(natural)), key=natural.__getitem__)):
            shares[column] = min(natural[column], room // (len(natural) - count))
            room -= shares[column]
        return [shares[column] for column in range(len(natural))]


class TableLine(Line):
    is_joined = False

    def __init__(
        self, cells: Sequence[Content], table: _Table, prefix: Content, start: int, end: int
    ) -> None:
        super().__init__(prefix, prefix, start, end)
        self._cells, self._table = cells, table
        self._laid_out = (0, list[Content]())

    @property
    def contents(self) -> Sequence[Content]:
        return self._cells

    def rows(self, width: int, *, has_cursor: bool) -> Iterator[Row]:
        del has_cursor
        width -= self.head.cell_length
        self._laid_out = width, self._screen(self._cells, width)
        for number, line in enumerate(self._laid_out[1]):
            yield Row(number, len(line), self.head)

    def content(self, row: Row, hues: Hues, *, has_cursor: bool) -> Content:
        del has_cursor
        width, screen = self._laid_out
        if hues and any(hues):
            pairs = zip(self._cells, hues, strict=True)
            screen = self._screen([cell.add_spans([*spans]) for cell, spans in pairs], width)
        return screen[row.start]

    @property
    def key(self) -> tuple[object, ...]:
        table = self._table
        return *super().key, table.natural, table.has_body

    @property
    def _is_header(self) -> bool:
        return self._cells is self._table.header

    def _screen(self, cells: Sequence[Content], width: int) -> list[Content]:
        widths = self._table.widths(width)
        if not widths:
            return self._listed(cells, width)
        style = "bold" if self._is_header else ""
        wrapped = [
            [line.rstrip() for line in cell.stylize(style).wrap(column)]
            for cell, column in zip(cells, widths, strict=False)
        ]
        gap = Content(" " * _GAP)
        lines = [
            gap.join(
                _aligned(part, column, place)
                for part, column, place in zip(parts, widths, self._table.aligned, strict=False)
            )
            for parts in zip_longest(*wrapped, fillvalue=_EMPTY)
        ]
        rule = gap.join(Content.styled("─" * column, _RULES) for column in widths)
        return [*lines, rule] if self._is_header else lines

    def _listed(self, cells: Sequence[Content], width: int) -> list[Content]:
        """Each cell below its column's header; the header stands alone where nothing follows."""
        width, lines = max(1, width), list[Content]()
        if self._is_header:
            listed = () if self._table.has_body else cells
            return [line for cell in listed for line in cell.stylize("bold").wrap(width)]
        for header, cell in zip_longest(self._table.header, cells, fillvalue=_EMPTY):
            lines += [*header.stylize("bold").wrap(width), *cell.wrap(width)]
        return [*lines, _EMPTY]


def _aligned(text: Content, width: int, place: str) -> Content:
    left = max(0, width - text.cell_length)
    before = {"center": left // 2, "right": left}.get(place, 0)
    return text.pad_left(before).pad_right(left - before)


def _end_of_row(line: str, start: int, width: int) -> int:
    """Where a row that begins at start ends: after a space if there is one, else anywhere."""
    end = start + max(1, width)
    if end >= len(line) and line.isascii():
        return len(line)
    while end > start + 1 and (over := cell_len(line[start:end]) - max(1, width)) > 0:
        end = max(start + 1, end - (over + 1) // 2)  # no character is wider than two cells
    if end >= len(line):
        return len(line)
    indented = len(line) - len(line.lstrip())
    space = line.rfind(" ", max(start, indented) + 1, end + 1)
    return end if space < 0 else space + 1


class _Cut(NamedTuple):
    """Where the text can be read on: a block at the left edge, or an item of a long list.

    lines: how many are before it. has_gap: whether a blank one follows them. list_type: of the list
    that it goes on with. codes: how many blocks of code are before it.
    """

    start: int
    lines: int
    has_gap: bool
    list_type: str = ""
    codes: int = 0


class Document:
    """known: numbers of the passages that may be cited; without any nothing is a citation."""

    def __init__(self, text: str = "", known: frozenset[int] = frozenset()) -> None:
        self.text, self._known = text, known
        self.source = text.translate(_SHOWN)
        """What is shown: the end of the text may be held back until more is known."""
        self.lines: list[Line] = []
        self._cut = _Cut(0, 0, has_gap=False)
        self._read(grows=False)

    def append(self, text: str) -> int:
        """Add text; returns the first line that has changed."""
        self.text += text
        more = self.text[len(self.source) :].translate(_SHOWN)
        begin = more.rfind("\n") + 1
        may_begin_item = begin or self.source[-1:] in ("", "\n")
        held = may_begin_item and _NUMBER.match(more, begin)
        self.source += more[:begin] if held else more
        return self._read(grows=True)

    @property
    def codes(self) -> list[str]:
        """The blocks of code."""
        firsts = (line for line in self.lines if isinstance(line, CodeLine) and line.is_first)
        return [line.code or "" for line in firsts]

    def complete(self) -> int:
        """Read all once more: links may be defined below their use, and code is highlighted whole.

        Returns the first line that has changed.
        """
        self.source = self.text.translate(_SHOWN)
        if "]: " in self.source or any(line.code is not None for line in self.lines):
            self._cut = _Cut(0, 0, has_gap=False)
            self.lines.clear()
        return self._read(grows=False)

    def _read(self, *, grows: bool) -> int:
        """Read on from the last cut; lines that have not changed stay what they are."""
        first = changed = self._cut.lines
        reader = _Reader(self.source, self._cut, self._known, grows=grows)
        before, new = self.lines[first:], reader.lines
        for place, (old, line) in enumerate(zip(before, new, strict=False)):
            if old.key == line.key:
                new[place], old.code = old, line.code  # the rest of the code may have grown
                changed += first + place == changed
        self.lines[first:] = new
        self._cut = reader.last_cut
        return changed


class _Margin(NamedTuple):
    """What stands before the first row of a block and before the others.

    depth: how many bullet lists it stands in.
    """

    head: Content = _EMPTY
    hang: Content = _EMPTY
    depth: int = 0

    def below(self) -> "_Margin":
        return _Margin(self.hang, self.hang, self.depth)


_EDGE = _Margin()


class _Reader:
    def __init__(self, source: str, cut: _Cut, known: frozenset[int], *, grows: bool) -> None:
        self._known = known
        self.lines: list[Line] = []
        self.last_cut = cut
        self._lines_before = cut.lines
        self._grows = grows
        rest = source[cut.start :]
        self._starts = [*accumulate(map(len, rest.splitlines(keepends=True)), initial=cut.start)]
        self._has_gap, self._codes = cut.has_gap, cut.codes
        tokens = PARSER.parse(rest, {KNOWN: known})
        for place, node in enumerate(SyntaxTreeNode(tokens).children):
            if place or node.type != cut.list_type:
                self._has_gap = self._has_gap or place > 0 or bool(cut.list_type)
                self._cut_at(node)
            self._read_block(node, _EDGE)

    def _cut_at(self, node: SyntaxTreeNode, list_type: str = "") -> None:
        count = self._lines_before + len(self.lines)
        self.last_cut = _Cut(self._range(node)[0], count, self._has_gap, list_type, self._codes)

    def _read_block(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        start, end = self._range(node)
        if self._has_gap:
            self._has_gap = False
            blank = margin.hang.rstrip()
            self.lines.append(TextLine(blank, blank, start, start))
        match node.type:
            case "bullet_list" | "ordered_list":
                self._read_list(node, margin)
            case "blockquote":
                bar = Content.styled("│ ", _RULES)
                margin = _Margin(margin.head + bar, margin.hang + bar, margin.depth)
                for place, child in enumerate(node.children):
                    self._has_gap = place > 0
                    self._read_block(child, margin)
                    margin = margin.below()
            case "fence" | "code_block":
                self._read_code(node, margin)
            case "table":
                self._read_table(node, margin)
            case "hr":
                self.lines.append(RuleLine(margin.head, margin.hang, start, end))
            case _:
                text = self._text(node.children[0]) if node.children else Content(node.content)
                if node.type == "heading":
                    text = text.stylize(_HEADINGS.get(node.tag, _LOWER_HEADING))
                self.lines.append(TextLine(margin.head, margin.hang, start, end, text=text))

    def _read_list(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        first, last = node.map or (0, 0)
        cuts = margin is _EDGE and last - first > _LONG_LIST
        depth = margin.depth + (node.type == "bullet_list")
        for bullet, item in zip(_bullets(node, margin.depth), node.children, strict=True):
            if cuts and item is node.children[-1]:
                self._cut_at(item, node.type)
            head = margin.head + Content.styled(bullet, _MUTED)
            inner = _Margin(head, margin.hang + Content(" " * cell_len(bullet)), depth)
            if not item.children:
                self.lines.append(TextLine(inner.head, inner.hang, *self._range(item)))
            for child in item.children:
                self._read_block(child, inner)
                self._has_gap = child.type not in ("paragraph", *_LISTS)
                inner = inner.below()
            margin = margin.below()

    def _read_code(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        language = node.info.split()[0] if node.info.strip() else ""
        self._codes += 1
        code = _Code(node.content.rstrip(), language, self._codes, grows=self._grows)
        first = (node.map or (0, 0))[0] + (node.type == "fence")
        for number in range(len(code.lines)):
            start, end = (self._start(first + number + one) for one in (0, 1))
            self.lines.append(CodeLine(code, number, margin.head, margin.hang, start, end))
            margin = margin.below()

    def _read_table(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        rows = [row for part in node.children for row in part.children]
        cells = [[self._text(cell.children[0]) for cell in row.children] for row in rows]
        styles = [str(cell.attrs.get("style", "")) for cell in rows[0].children]
        table = _Table(cells, [style.rpartition(":")[2] for style in styles])
        for row, texts in zip(rows, cells, strict=True):
            self.lines.append(TableLine(texts, table, margin.head, *self._range(row)))
            margin = margin.below()

    def _text(self, node: SyntaxTreeNode) -> Content:
        return _content(node, self._known)

    def _range(self, node: SyntaxTreeNode) -> tuple[int, int]:
        first, last = node.map or (0, 0)
        return self._start(first), self._start(last)

    def _start(self, line: int) -> int:
        return self._starts[min(line, len(self._starts) - 1)]


def _bullets(node: SyntaxTreeNode, depth: int) -> Sequence[str]:
    """What stands before each item; the first one of a numbered list sets the start."""
    count = len(node.children)
    if node.type == "bullet_list":
        return [Markdown.BULLETS[depth % len(Markdown.BULLETS)]] * count
    first = node.children[0].info
    start = int(first) if first.isdecimal() else 1
    width = len(f"{start + count - 1}. ")
    return [f"{number}. ".rjust(width) for number in range(start, start + count)]


def _content(node: SyntaxTreeNode, known: frozenset[int]) -> Content:
    texts: list[str] = []
    spans: list[Span] = []
    opened: list[tuple[Style | str, int]] = []
    length = 0
    for token in node.token.children or () if node.token else ():
        kind, _, side = token.type.rpartition("_")
        if side == "close":
            style, start = opened.pop()
            spans.append(Span(start, length, style))
        elif side == "open":
            opened.append((_STYLES.get(kind) or _link(token.attrs.get("href")), length))
        else:
            text = _text(token)
            if token.type == "code_inline":
                spans.append(Span(length, length + len(text), "$text-accent on $panel"))
            elif token.type == "maths":
                spans.append(Span(length, length + len(text), "italic"))
            elif token.type == "citation":
                spans.append(Span(length, length + len(text), _cited(token.meta[NUMBER], known)))
            elif token.type == "image":
                spans.append(Span(length, length + len(text), _link(token.attrs.get("src"))))
            texts.append(text)
            length += len(text)
    return Content("".join(texts), spans)


def _text(token: Token) -> str:
    match token.type:
        case "hardbreak":
            return "\n"
        case "softbreak":
            return " "
        case "code_inline":
            return token.content.expandtabs()
        case "image":
            alt = "".join(child.content for child in token.children or ())
            return f"🖼  {alt}"
        case _:
            return re.sub(r"\s+", " ", token.content)


def _link(address: object) -> Style:
    return Style.from_meta({"@click": f"link({address or ''!r})"})


def _cited(number: int, known: frozenset[int]) -> Style | str:
    """A citation: a link to its passage, or a warning where there is none."""
    if number not in known:
        return "$text-warning"
    return Style.from_meta({"@click": f"passage({number})", NUMBER: number})


def cited_by(span: Span) -> int | None:
    """The number of the passage that a part of a text cites, None if it is no such citation."""
    return span.style.meta.get(NUMBER) if isinstance(span.style, Style) else None
