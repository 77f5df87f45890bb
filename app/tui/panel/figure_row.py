"""Rows of figures that repaint only when they change, and explain themselves on focus."""

from typing import ClassVar

from textual.content import Content
from textual.widget import Widget


class FigureRow(Widget, can_focus=True):
    """A row of fixed size; showing the same again costs nothing."""

    DEFAULT_CSS: ClassVar[str] = """
    FigureRow { height: 1; width: 1fr; }
    FigureRow:focus { background: $primary 25%; }
    """

    def __init__(self, help_text: str, *, classes: str = "") -> None:
        super().__init__(classes=classes)
        self.help_text = help_text
        self._content = Content("")

    @property
    def text(self) -> str:
        """What it shows."""
        return self._content.plain

    def allow_focus(self) -> bool:
        return self.can_focus and bool(self.text)

    def show(self, content: Content | str) -> None:
        """Show other figures, in the same space."""
        if isinstance(content, str):
            content = Content(content)
        if not content.is_same(self._content):
            self._content = content
            self.refresh()

    def render(self) -> Content:
        return self._content
