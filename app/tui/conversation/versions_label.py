"""Which version of a message is shown."""

from typing import ClassVar

from textual.content import Content
from textual.widgets import Static

_OPEN = "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}"
_CLOSE = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


class VersionsLabel(Static):
    """Place and number of versions; nothing where there is one version."""

    DEFAULT_CSS: ClassVar[str] = """
    VersionsLabel { width: auto; height: 1; margin: 0 0 0 2; color: $text-muted; display: none; }
    """

    def show(self, place: int, count: int) -> None:
        """Show a place, from 1, among the versions."""
        self.update(Content(f"{_OPEN}{place}/{count}{_CLOSE}"))
        self.display = count > 1
