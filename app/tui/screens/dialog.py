"""The frame of a dialog: its name at the top left, a fact at the right, its keys at the bottom."""

from typing import ClassVar

from rich.cells import cell_len
from textual.containers import Vertical
from textual.content import Content

from app.printable import one_line
from app.tui.typed_app import typed_app

NARROW = 60
"""Columns of a terminal below which lists have short texts and few columns."""

_CORNERS = 6
"""Columns of the frame beside its texts: two corners, two lines and two blanks."""


def is_narrow(width: int) -> bool:
    """Whether a terminal has room for short texts only."""
    return width < NARROW


class Dialog(Vertical):
    """A rounded frame; keys: what they do, in a narrow terminal in fewer words.

    It is a box where the screen is wide, else it fills the screen.
    """

    app = typed_app
    SCOPED_CSS = False
    DEFAULT_CSS: ClassVar[str] = """
    Dialog {
        width: 100%; height: 100%; border: round $secondary; background: $surface;
        border-title-color: $foreground; border-title-background: $surface;
        border-subtitle-align: left;
        border-subtitle-color: $secondary; border-subtitle-background: $surface;
    }
    .-wide Dialog { width: 88; height: 56%; min-height: 20; }
    """

    def __init__(self, title: str, keys: str, short_keys: str) -> None:
        super().__init__()
        self._title = title
        self._fact = ""
        self._keys, self._short_keys = keys, short_keys

    def show_title(self, title: str, fact: str = "") -> None:
        """Show a name, and a fact at the right where there is room for it."""
        self._title, self._fact = one_line(title), one_line(fact)
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        room = self.outer_size.width - _CORNERS
        line = room - cell_len(self._title) - cell_len(self._fact) - 2
        title = Content.styled(self._title, "bold")
        if self._fact and line >= 1:
            fact = (f" {self._fact}", "$secondary")
            title = Content.assemble(title, (f" {'─' * line}", "$secondary"), fact)
        self.border_title = title
        self.border_subtitle = self._keys if self.app.size.width >= NARROW else self._short_keys
