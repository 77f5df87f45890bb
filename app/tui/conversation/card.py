"""What went wrong, and what to do about it, where it happened."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from app.printable import printable
from app.tui.conversation.folded_line import FoldedLine

ERROR, WARNING = "✕", "▲"


class Card(Vertical):
    """A mark, a sentence, and below it the remedy."""

    DEFAULT_CSS: ClassVar[str] = """
    Card { height: auto; max-width: 121; margin: 0 0 1 1; }
    Card Horizontal { height: auto; color: $error; }
    Card.-warning Horizontal { color: $warning; }
    Card .mark { width: 2; }
    Card .what { width: 1fr; height: auto; }
    Card > .remedy { height: auto; padding: 0 0 0 2; color: $text-muted; }
    """

    def __init__(self, text: str, remedy: str = "", *, mark: str = ERROR) -> None:
        super().__init__(classes="-warning" if mark == WARNING else None)
        self.text = text
        self._remedy = remedy
        self._mark = mark

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(self._mark, classes="mark")
            yield Static(Content(printable(self.text)), classes="what")
        if self._remedy:
            yield Static(FoldedLine(printable(self._remedy)), classes="remedy")
