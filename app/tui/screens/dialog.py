"""The frame of a dialog: its name at the top left, a fact at the right, its keys at the bottom."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.containers import Vertical
from textual.content import Content

from app.printable import one_line
from app.tui.typed_app import typed_app

BOX_COLUMNS = 110
"""Width of a terminal from which a dialog is a box; below, it fills the screen."""

_CORNERS = 6
"""Columns of the frame beside its texts: two corners, two lines and two blanks."""


class Dialog(Vertical):
    """A rounded frame; keys: texts of the keys, of which the longest that fits is shown."""

    app = typed_app
    DEFAULT_CSS: ClassVar[str] = """
    Dialog {
        width: 100%; height: 100%; border: round $secondary; background: $surface;
        border-title-color: $foreground; border-title-background: $surface;
        border-subtitle-align: left;
        border-subtitle-color: $secondary; border-subtitle-background: $surface;
    }
    Dialog.-box { width: 88; height: 56%; min-height: 20; }
    """

    def __init__(self, title: str, keys: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._fact = ""
        self._keys = tuple(keys)

    def show_title(self, title: str, fact: str = "") -> None:
        """Show a name, and a fact at the right where there is room for it."""
        self._title, self._fact = one_line(title), one_line(fact)
        self._fit()

    def on_resize(self) -> None:
        self.set_class(self.app.size.width >= BOX_COLUMNS, "-box")
        self._fit()

    def _fit(self) -> None:
        room = self.outer_size.width - _CORNERS
        line = room - cell_len(self._title) - cell_len(self._fact) - 2
        title = Content.styled(self._title, "bold")
        if self._fact and line >= 1:
            fact = (f" {self._fact}", "$secondary")
            title = Content.assemble(title, (f" {'─' * line}", "$secondary"), fact)
        self.border_title = title
        fitting = (keys for keys in self._keys if cell_len(keys) <= room)
        self.border_subtitle = next(fitting, "")
