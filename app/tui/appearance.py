"""How the app looks and listens, brought to the screen."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual import constants
from textual.app import App

from app.settings import catalogue
from app.settings.catalogue import Value
from app.settings.preferences import Preferences
from app.tui.prompt.prompt import PromptArea
from app.tui.status.panel import Panel

if TYPE_CHECKING:
    from app.tui.screens.chat_screen import ChatScreen

_ROOM_FOR_PANEL = 110
"""Columns of a terminal wide enough for the conversation and the panel."""


def set_theme(app: App[Any], theme: str) -> None:
    """Use a theme.

    Raises:
        UsageError: there is none of this name; the nearest one is named.
    """
    known = catalogue.known(theme, app.available_themes, f"there is no theme {theme!r}")
    app.theme = known


def set_up(screen: "ChatScreen", preferences: Preferences) -> None:
    """Bring a new screen to what is wanted, but for the theme, which is the app's."""
    app = screen.app
    usual = constants.TEXTUAL_ANIMATIONS
    app.animation_level = usual if preferences.animations else "none"
    area = screen.query_one(PromptArea)
    area.enter_sends = preferences.enter_sends
    area.cursor_blink = app.animation_level != "none"
    show_panel(screen)


def show_panel(screen: "ChatScreen") -> None:
    """Show or hide the live panel, as wanted or as there is room."""
    how = screen.preferences.panel
    is_wide = screen.app.size.width >= _ROOM_FOR_PANEL
    screen.query_one(Panel).display = how == "shown" or (how == "auto" and is_wide)
    screen.figures.refresh()


def change(screen: "ChatScreen", changes: Mapping[str, Value]) -> None:
    """Take up changed preferences, theme included.

    Raises:
        UsageError: there is no such theme.
    """
    if "theme" in changes:
        set_theme(screen.app, str(changes["theme"]))
    known: dict[str, Any] = {
        name: value for name, value in changes.items() if hasattr(screen.preferences, name)
    }
    screen.preferences = replace(screen.preferences, **known)
    set_up(screen, screen.preferences)
