"""A Markdown block that wraps its lines itself and paints only those in view."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widgets.markdown import MarkdownBlock

from app.tui.answer_text.laid_out_once import LaidOutOnce


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
