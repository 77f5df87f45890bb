"""How many colours the terminal shows."""

from enum import StrEnum
from typing import Any

from textual.app import App


class ColourDepth(StrEnum):
    """Classes of terminals by their colours."""

    NONE = "none"
    """No colours, or none wanted (NO_COLOR)."""
    SIXTEEN = "16"
    FULL = "full"
    """256 colours or more."""

    @classmethod
    def of(cls, app: App[Any]) -> "ColourDepth":
        """The depth that Textual paints an app with: from TERM, COLORTERM and NO_COLOR."""
        if app.no_color:
            return cls.NONE
        return cls.SIXTEEN if app.console.color_system == "standard" else cls.FULL
