"""Markdown with cheap lists: one widget for an item, where Textual has four."""

from typing import Any, ClassVar, cast

from textual.app import ComposeResult
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
    MarkdownBulletList,
    MarkdownList,
    MarkdownListItem,
    MarkdownOrderedList,
    MarkdownParagraph,
)


class Hanging(Visual):
    """Content with a bullet before its first line and an indent before the others."""

    def __init__(self, bullet: str, content: Content) -> None:
        self._bullet = Content.styled(bullet, "$text-primary")
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


class ListLine(Static):
    """A list item of one paragraph."""

    DEFAULT_CSS: ClassVar[str] = "ListLine { width: 1fr; height: auto; }"

    def __init__(self, bullet: str, content: Content) -> None:
        super().__init__(Hanging(bullet, content))
        self._text = content.plain

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        return selection.extract(self._text), "\n"

    @property
    def select_container(self) -> Widget:
        return self.query_ancestor(Markdown)

    async def action_link(self, href: str) -> None:
        """Report a click on a link, as Markdown does."""
        self.post_message(Markdown.LinkClicked(self.query_ancestor(Markdown), href))


def _row(bullet: str, blocks: list[MarkdownBlock]) -> Widget:
    """A list item: one widget if it is one paragraph, else bullet and blocks side by side."""
    if len(blocks) == 1 and isinstance(paragraph := blocks[0], MarkdownParagraph):
        return ListLine(bullet, cast("Content", paragraph.content))
    mark = MarkdownBullet()
    mark.symbol = bullet
    return Horizontal(mark, Vertical(*blocks))


def _blocks(block: MarkdownBlock) -> list[MarkdownBlock]:
    """Take the parsed blocks out of a block, which has none afterwards."""
    return [child for child in MarkdownBlock.compose(block) if isinstance(child, MarkdownBlock)]


def _items(markdown_list: MarkdownList) -> list[MarkdownListItem]:
    return [block for block in _blocks(markdown_list) if isinstance(block, MarkdownListItem)]


class CompactBulletList(MarkdownBulletList):
    """A bulleted list."""

    def compose(self) -> ComposeResult:
        for item in _items(self):
            yield _row(item.bullet, _blocks(item))


class CompactOrderedList(MarkdownOrderedList):
    """A numbered list; the first item sets the start."""

    def compose(self) -> ComposeResult:
        items = _items(self)
        start = int(items[0].bullet) if items and items[0].bullet.isdecimal() else 1
        width = len(f" {start + len(items) - 1}. ")
        for number, item in enumerate(items, start):
            yield _row(f"{number}. ".rjust(width), _blocks(item))


class CompactMarkdown(Markdown):
    """Textual's Markdown with compact lists and headings that wrap."""

    DEFAULT_CSS: ClassVar[str] = "CompactMarkdown MarkdownHeader { width: 1fr; }"

    BLOCKS: ClassVar[dict[str, type[MarkdownBlock]]] = {  # pyright: ignore[reportIncompatibleVariableOverride]
        **Markdown.BLOCKS,
        "bullet_list_open": CompactBulletList,
        "ordered_list_open": CompactOrderedList,
    }

    def __init__(self, text: str = "", classes: str | None = None) -> None:
        # A click on a link copies its address: the model may have made it up.
        super().__init__(text, classes=classes, open_links=False)
