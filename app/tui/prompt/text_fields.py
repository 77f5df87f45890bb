"""Fields that keep what is typed or pasted, and show stand-ins for what could steer a terminal."""

from rich.highlighter import Highlighter
from rich.text import Text
from textual.widgets import TextArea

from app.printable import one_line, printable


class StandIns(Highlighter):
    """For an Input: shows its line printable."""

    def highlight(self, text: Text) -> None:
        text.plain = one_line(text.plain)


class PrintableTextArea(TextArea):
    """A text of several lines."""

    def get_line(self, line_index: int) -> Text:
        return Text(printable(self.document.get_line(line_index)), end="", no_wrap=True)
