"""The frame of a dialog: its name at the top left, a fact at the right, its keys at the bottom."""

from typing import ClassVar

from rich.cells import cell_len
from textual.containers import Vertical
from textual.content import Content

from app.printable import one_line
from app.tui.fitting import longest_fitting
from app.tui.typed_app import typed_app

NARROW = 60
"""Columns of a terminal below which lists have short texts and few columns."""

_CORNERS = 6
"""Columns of the frame beside its texts: two corners, two lines and two blanks."""


def is_narrow(width: int) -> bool:
    """Whether a terminal has room for short texts only."""
    return width < NARROW


class Dialog(Vertical):
    """A rounded frame; keys: what they do, in as many words as there is room for, longest first.

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

    def __init__(self, title: str, *keys: str) -> None:
        super().__init__()
        self._title = title
        self._facts: tuple[str, ...] = ()
        self._keys = keys

    def show_title(self, title: str, *facts: str) -> None:
        """Show a name, and at the right the first version of a fact that there is room for."""
        self._title, self._facts = one_line(title), tuple(map(one_line, facts))
        self._fit()

    def show_keys(self, *keys: str) -> None:
        """Show other keys, longest version first."""
        if keys != self._keys:
            self._keys = keys
            self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        room = self.outer_size.width - _CORNERS
        left = room - cell_len(self._title) - 3
        fact = next((fact for fact in self._facts if cell_len(fact) <= left), "")
        title = Content.styled(self._title, "bold")
        if fact:
            line = "─" * (left - cell_len(fact) + 1)
            title = Content.assemble(title, (f" {line}", "$secondary"), (f" {fact}", "$secondary"))
        self.border_title = title
        self.border_subtitle = Content(longest_fitting(self._keys, room))
