"""What went wrong, and what to do about it, where it happened."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.printable import printable

ERROR, WARNING = "✕", "▲"


class Card(Vertical):
    """A mark, a sentence, and below it the remedy."""

    DEFAULT_CSS: ClassVar[str] = """
    Card { height: auto; max-width: 121; margin: 0 0 1 1; }
    Card > Static { height: auto; }
    Card > .what { color: $error; }
    Card.-warning > .what { color: $warning; }
    Card > .remedy { padding: 0 0 0 2; color: $text-muted; }
    """

    def __init__(self, text: str, remedy: str = "", *, mark: str = ERROR) -> None:
        super().__init__(classes="-warning" if mark == WARNING else None)
        self.text = text
        self._remedy = remedy
        self._mark = mark

    def compose(self) -> ComposeResult:
        yield Static(Content(f"{self._mark} {printable(self.text)}"), classes="what")
        if self._remedy:
            yield Static(Content(printable(self._remedy)), classes="remedy")
