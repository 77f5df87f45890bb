"""Leaves out preferences that cannot work: an unknown theme, and keys that contradict others."""

from dataclasses import replace

from textual.theme import BUILTIN_THEMES

from app.settings import catalogue
from app.settings.preferences import Preferences
from app.tui.keymap import usable_keys
from app.tui.look.themes import DARK, LIGHT
from backends.base import UsageError

THEMES = (DARK, LIGHT, *sorted(BUILTIN_THEMES))
"""Names of all themes, the app's own first."""


def check_theme(name: str) -> str:
    """Return the name of a theme.

    Raises:
        UsageError: there is no such theme; the error names the nearest.
    """
    return catalogue.known(name, THEMES, f"there is no theme {name!r}")


def usable_preferences(preferences: Preferences) -> tuple[Preferences, tuple[UsageError, ...]]:
    """The preferences that can work, and why the others cannot."""
    keys, faults = usable_keys(preferences.keys, preferences.file)
    preferences = replace(preferences, keys=keys)
    try:
        check_theme(preferences.theme)
    except UsageError as error:
        return replace(preferences, theme=DARK), (*faults, error)
    return preferences, faults
