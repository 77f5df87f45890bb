"""Markdown with cheap lists: one widget for an item, where Textual has four."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, cast

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownBlock

# Not exported by textual.widgets.markdown; textual is pinned exactly.
from textual.widgets._markdown import (  # isort: skip
    MarkdownBullet,
    MarkdownList,
    MarkdownListItem,
    MarkdownParagraph,
)

from app.tui.answer_text.code_block import CodeBlock
from app.tui.answer_text.laid_out_once import LaidOutOnce
from app.tui.answer_text.steady_paragraph import SteadyParagraph
from app.tui.answer_text.table_block import TABLE, TableBlock, folded_tables


class Hanging(Visual):
    """Content with a bullet before its first line and an indent before the others."""

    def __init__(self, bullet: str, content: Content) -> None:
        self._bullet = Content.styled(bullet, "$text-muted")
        self._indent = self._bullet.cell_length
        self._content = content

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        inner = self._inner(width)
        lines = self._content.render_strips(inner, height, style, options)
        plain = RenderOptions(options.get_style, options.rules)
        [first] = self._bullet.render_strips(self._indent, 1, style, plain)
        below = Strip.blank(self._indent, style.rich_style)
        return [Strip.join([below if n else first, line]) for n, line in enumerate(lines)]

    def get_optimal_width(self, rules: Any, container_width: int) -> int:
        inner = self._content.get_optimal_width(rules, self._inner(container_width))
        return self._indent + inner

    def get_height(self, rules: Any, width: int) -> int:
        return max(1, self._content.get_height(rules, self._inner(width)))

    def _inner(self, width: int) -> int:
        return max(1, width - self._indent)


class ListLine(LaidOutOnce, Static):
    """A list item of one paragraph."""

    DEFAULT_CSS: ClassVar[str] = "ListLine { width: 1fr; height: auto; }"

    def __init__(self, bullet: str, content: Content) -> None:
        super().__init__(Hanging(bullet, content))
        self._bullet = bullet
        self._parsed = self._text = content

    @property
    def text(self) -> Content:
        """The item as it is shown, without its bullet."""
        return self._text

    def change(self, text: Content) -> None:
        """Replace the text, unless it is the same."""
        if not text.is_same(self._parsed):
            self._parsed = text
            self.show(text, layout=True)

    def show(self, text: Content, *, layout: bool) -> None:
        """Show another text; layout: it may need other rows."""
        self._text = text
        self.update(Hanging(self._bullet, text), layout=layout)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        return selection.extract(self._text.plain), "\n"

    @property
    def select_container(self) -> Widget:
        return self.query_ancestor(Markdown)

    async def action_link(self, href: str) -> None:
        """Report a click on a link, as Markdown does."""
        self.post_message(Markdown.LinkClicked(self.query_ancestor(Markdown), href))


Item = tuple[str, list[MarkdownBlock]]
"""Bullet and contents of a list item."""


def _row(item: Item) -> Widget:
    """A list item: one widget if it is one paragraph, else bullet and blocks side by side."""
    bullet, blocks = item
    if (text := _only_text(item)) is not None:
        return ListLine(bullet, text)
    mark = MarkdownBullet()
    mark.symbol = bullet
    return Horizontal(mark, Vertical(*blocks))


def _only_text(item: Item) -> Content | None:
    """The text of an item that is one paragraph."""
    _, blocks = item
    if len(blocks) == 1 and isinstance(paragraph := blocks[0], MarkdownParagraph):
        return cast("Content", paragraph.content)
    return None


def _blocks(block: MarkdownBlock) -> list[MarkdownBlock]:
    """Take the parsed blocks out of a block, which has none afterwards."""
    return [child for child in MarkdownBlock.compose(block) if isinstance(child, MarkdownBlock)]


class CompactList(LaidOutOnce, MarkdownList):
    """A list that keeps its items when it grows."""

    DEFAULT_CSS: ClassVar[str] = """
    CompactList { width: 1fr; margin: 0 0 1 0; }
    CompactList CompactList { margin: 0; }
    CompactList Horizontal, CompactList Vertical { height: auto; width: 1fr; }
    """

    _taken: list[Item] | None = None

    @property
    def items(self) -> list[Item]:
        """The items, as they were parsed."""
        if self._taken is None:
            items = [block for block in _blocks(self) if isinstance(block, MarkdownListItem)]
            bullets = self.bullets(items)
            self._taken = [
                (bullet, _blocks(item)) for bullet, item in zip(bullets, items, strict=True)
            ]
        return self._taken

    def bullets(self, items: Sequence[MarkdownListItem]) -> Sequence[str]:
        """What stands before each item."""
        return [item.bullet for item in items]

    def compose(self) -> ComposeResult:
        yield from map(_row, self.items)

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        rows = [*self.children]
        if not isinstance(block, CompactList) or not self._grows_to(block):
            await super()._update_from_block(block)
            return
        for row, item in zip(rows, block.items, strict=False):
            text = _only_text(item)
            if isinstance(row, ListLine) and text is not None:
                row.change(text)
            elif isinstance(row, ListLine) or row is rows[-1]:
                await self.mount(_row(item), before=row)
                await row.remove()
        self._taken = block.items
        if more := [_row(item) for item in block.items[len(rows) :]]:
            await self.mount_all(more)

    def _grows_to(self, block: "CompactList") -> bool:
        """Whether a list begins with the items of this one."""
        bullets, new = ([bullet for bullet, _ in taken.items] for taken in (self, block))
        return type(block) is type(self) and new[: len(bullets)] == bullets


class CompactBulletList(CompactList):
    """A bulleted list."""


class CompactOrderedList(CompactList):
    """A numbered list; the first item sets the start."""

    def bullets(self, items: Sequence[MarkdownListItem]) -> Sequence[str]:
        start = int(items[0].bullet) if items and items[0].bullet.isdecimal() else 1
        width = len(f"{start + len(items) - 1}. ")
        return [f"{number}. ".rjust(width) for number in range(start, start + len(items))]


def _parser() -> MarkdownIt:
    """A parser that shows HTML as it is written: a terminal cannot render it."""
    return MarkdownIt("gfm-like", {"html": False})


class CompactMarkdown(LaidOutOnce, Markdown):
    """Textual's Markdown in greys, with compact lists, and code and tables that wrap."""

    DEFAULT_CSS: ClassVar[str] = """
    CompactMarkdown { margin: 0; padding: 0; }
    CompactMarkdown MarkdownHeader {
        width: 1fr; margin: 0 0 1 0; content-align: left top;
        color: $foreground; background: transparent; text-style: bold;
    }
    CompactMarkdown MarkdownBlockQuote {
        background: transparent; border-left: solid $border-blurred; margin: 0 0 1 0; padding: 0 1;
    }
    CompactMarkdown MarkdownHorizontalRule {
        border-bottom: solid $border-blurred; padding: 0; margin: 0 0 1 0;
    }
    CompactMarkdown MarkdownBullet { color: $text-muted; }
    CompactMarkdown MarkdownBlock > .code_inline {
        background: $panel !important; color: $foreground !important;
    }
    """

    BLOCKS: ClassVar[dict[str, type[MarkdownBlock]]] = {  # pyright: ignore[reportIncompatibleVariableOverride]
        **Markdown.BLOCKS,
        "paragraph_open": SteadyParagraph,
        "bullet_list_open": CompactBulletList,
        "ordered_list_open": CompactOrderedList,
        "fence": CodeBlock,
        "code_block": CodeBlock,
    }

    def __init__(self, text: str = "", classes: str | None = None) -> None:
        # A click on a link copies its address: the model may have made it up.
        super().__init__(text, classes=classes, open_links=False, parser_factory=_parser)

    def update(self, markdown: str) -> AwaitComplete:
        """Replace the text.

        Textual would parse what is appended from the last line on, and replace the last block by
        it: of a list only the last item would be left.
        """
        updated = super().update(markdown)

        async def update() -> None:
            await updated
            blocks = [block for block in self.children if isinstance(block, MarkdownBlock)]
            self._last_parsed_line = blocks[-1].source_range[0] if blocks else 0

        return AwaitComplete(update())

    def continue_list(self, mark: str) -> None:
        """Join the list at the end to one that follows. mark: its kind, as `list_mark` tells."""
        last = self.children[-1] if self.children else None
        if isinstance(last, CompactBulletList if mark == "bullet" else CompactOrderedList):
            last.styles.margin = 0  # a class would have the whole list styled anew

    def _parse_markdown(self, tokens: Iterable[Token]) -> Iterable[MarkdownBlock]:
        return super()._parse_markdown(folded_tables(tokens))

    def unhandled_token(self, token: Token) -> MarkdownBlock | None:
        return TableBlock(self, token) if token.type == TABLE else None
