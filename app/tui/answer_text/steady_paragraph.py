"""Markdown text that grows without a new layout while its rows stay as many."""

from textual.visual import VisualType, visualize

from app.tui.answer_text.laid_out_once import LaidOutOnce

# Not exported by textual.widgets.markdown; textual is pinned exactly.
from textual.widgets._markdown import MarkdownParagraph  # isort: skip


class SteadyParagraph(LaidOutOnce, MarkdownParagraph):
    """A paragraph; a layout of the screen costs far more than painting its rows anew."""

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        super().update(content, layout=layout and self._needs_layout(content))

    def _needs_layout(self, content: VisualType) -> bool:
        width, height = self.content_size
        return not width or visualize(self, content).get_height({}, width) != height
