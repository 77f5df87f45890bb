"""Markdown with cheap lists, code and tables."""

from textual.visual import VisualType, visualize

from app.tui.widgets import LaidOutOnce

from textual.widgets._markdown import MarkdownParagraph  # isort: skip
from collections.abc import Iterable, Sequence
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock

from textual.widgets._markdown import (  # isort: skip
    MarkdownBullet,
    MarkdownList,
    MarkdownListItem,
)
from app.tui.chat.blocks import (
    BULLET_LIST,
    ORDERED_LIST,
    TABLE,
    CodeBlock,
    ListBlock,
    TableBlock,
    folded_lists,
    folded_tables,
    numbers,
)

# Not exported by textual.widgets.markdown; textual is pinned exactly.


class SteadyParagraph(LaidOutOnce, MarkdownParagraph):
    """A paragraph; a layout of the screen costs far more than painting its rows anew."""

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        super().update(content, layout=layout and self._needs_layout(content))

    def _needs_layout(self, content: VisualType) -> bool:
        width, height = self.content_size
        return not width or visualize(self, content).get_height({}, width) != height


# Not exported by textual.widgets.markdown; textual is pinned exactly.


Item = tuple[str, list[MarkdownBlock]]
"""Bullet and contents of a list item."""


def _row(item: Item) -> Widget:
    """A list item: bullet and blocks side by side."""
    bullet, blocks = item
    mark = MarkdownBullet()
    mark.symbol = bullet
    return Horizontal(mark, Vertical(*blocks))


def _blocks(block: MarkdownBlock) -> list[MarkdownBlock]:
    """Take the parsed blocks out of a block, which has none afterwards."""
    return [child for child in MarkdownBlock.compose(block) if isinstance(child, MarkdownBlock)]


class CompactList(LaidOutOnce, MarkdownList):
    """A list that keeps its items when it grows."""

    DEFAULT_CSS: ClassVar[str] = """
    CompactList { width: 1fr; margin: 0 0 1 0; }
    CompactList CompactList, CompactList ListBlock { margin: 0; }
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
        await rows[-1].remove()
        self._taken = block.items
        await self.mount_all(map(_row, block.items[len(rows) - 1 :]))

    def _grows_to(self, block: "CompactList") -> bool:
        """Whether a list begins with the items of this one."""
        bullets, new = ([bullet for bullet, _ in taken.items] for taken in (self, block))
        return type(block) is type(self) and new[: len(bullets)] == bullets


class CompactBulletList(CompactList):
    """A bulleted list."""


class CompactOrderedList(CompactList):
    """A numbered list; the first item sets the start."""

    def bullets(self, items: Sequence[MarkdownListItem]) -> Sequence[str]:
        return numbers(items[0].bullet if items else "", len(items))


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
        """Join the list at the end to one that follows. mark: its type, as `list_mark` tells."""
        last = self.children[-1] if self.children else None
        if last is not None and last.name in (mark, f"{mark}_open"):
            last.styles.margin = 0  # a class would have the whole list styled anew

    def _parse_markdown(self, tokens: Iterable[Token]) -> Iterable[MarkdownBlock]:
        return super()._parse_markdown(folded_tables(folded_lists([*tokens])))

    def unhandled_token(self, token: Token) -> MarkdownBlock | None:
        if token.type == TABLE:
            return TableBlock(self, token)
        return ListBlock(self, token) if token.type in (BULLET_LIST, ORDERED_LIST) else None
