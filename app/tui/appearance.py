"""The preferences in effect, and how they change while the app runs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from textual.app import App
from textual.theme import BUILTIN_THEMES

from app.settings import catalogue
from app.settings.catalogue import Value
from app.settings.preferences import NAMES, Preferences
from app.tui.look.themes import DARK, LIGHT
from backends.base import UsageError


def check_theme(name: str) -> str:
    """Return the name of a theme.

    Raises:
        UsageError: there is no such theme.
    """
    return catalogue.known(name, [DARK, LIGHT, *BUILTIN_THEMES], f"there is no theme {name!r}")


def set_theme(app: App[Any], theme: str) -> None:
    """Switch to a theme.

    Raises:
        UsageError: the name is unknown; the error names the nearest one.
    """
    app.theme = check_theme(theme)


def try_theme(app: App[Any], theme: str) -> str:
    """Switch to the theme of the settings; returns why not, empty if it is in use.

    No name stands for the dark theme; it is also used in place of an unknown one.
    """
    try:
        set_theme(app, theme or DARK)
    except UsageError as error:
        app.theme = DARK
        return f"{error}; {DARK} is used"
    return ""


class Appearance:
    """Holds the preferences and has them applied when they change."""

    def __init__(self, app: App[Any], preferences: Preferences, apply: Callable[[], None]) -> None:
        self.preferences = preferences
        self._app = app
        self._apply = apply

    def change(self, changes: Mapping[str, Value]) -> None:
        """Apply changed preferences; keys that are not preferences are ignored.

        Raises:
            UsageError: the theme is unknown.
        """
        if "theme" in changes:
            set_theme(self._app, str(changes["theme"]) or DARK)
        known: dict[str, Any] = {name: changes[name] for name in NAMES if name in changes}
        self.preferences = replace(self.preferences, **known)
        self._apply()
