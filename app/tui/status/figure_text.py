"""Text that changes often, with a new layout only where the number of lines changes."""

from textwrap import wrap

from textual.content import Content
from textual.widgets import Static


class FigureText(Static):
    """Figures that are updated several times a second."""

    _lines = 0

    def write(self, text: str) -> None:
        """Replace the text."""
        width = max(self.size.width, 1)
        lines = sum(max(len(wrap(line, width)), 1) for line in text.split("\n"))
        layout = lines != self._lines
        self._lines = lines
        self.update(Content(text), layout=layout)
