"""The themes that the app offers."""

from textual.theme import BUILTIN_THEMES

from app.settings.catalogue import known


def check_theme(name: str) -> None:
    """Reject the name of an unknown theme.

    Raises:
        UsageError: there is no such theme.
    """
    known(name, BUILTIN_THEMES, f"there is no theme {name!r}")
