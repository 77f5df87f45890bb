"""Lists of plain text, nested ones too, in one widget: a layout visits every widget there is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock

from app.tui.answer_text.hue_spans import CURSOR, Hues, with_hues
from app.tui.answer_text.line_block import LineBlock, Row
from app.tui.answer_text.wrapped_rows import WrappedRows, end_of_row

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
