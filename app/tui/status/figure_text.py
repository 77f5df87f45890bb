"""Text that changes often: the screen is laid out again only where lines come or go."""

from textwrap import wrap

from textual.content import Content
from textual.widgets import Static


class FigureText(Static):
    """Figures that are written several times a second."""

    _lines = 0

    def write(self, text: str) -> None:
        """Replace the text."""
        width = max(self.size.width, 1)
        lines = sum(max(len(wrap(line, width)), 1) for line in text.split("\n"))
        layout = lines != self._lines
        self._lines = lines
        self.update(Content(text), layout=layout)
