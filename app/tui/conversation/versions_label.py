"""Which version of a message is shown."""

from typing import ClassVar

from textual.content import Content
from textual.widgets import Static


class VersionsLabel(Static):
    """ "‹2/3›" for the second of three versions; nothing where there is one."""

    DEFAULT_CSS: ClassVar[str] = """
    VersionsLabel { width: auto; height: 1; margin: 0 0 0 2; color: $text-muted; display: none; }
    """

    def show(self, place: int, count: int) -> None:
        """Show a place, from 1, among the versions."""
        self.update(Content(f"‹{place}/{count}›"))
        self.display = count > 1
