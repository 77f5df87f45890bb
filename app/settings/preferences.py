"""Appearance and keys of the app: settings that no other command reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.settings.catalogue import DEFAULT_THEME, Value
from app.settings.in_effect import InEffect

NAMES = ("theme", "animations", "enter_sends", "panel")


@dataclass(frozen=True, slots=True)
class Preferences:
    """Settings of the app's screen.

    file: the settings file, which need not exist. keys: key bindings by name of action.
    """

    file: Path
    theme: str = DEFAULT_THEME
    animations: bool = True
    enter_sends: bool = True
    panel: str = "auto"
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    presets: Mapping[str, Mapping[str, Value]] = field(
        default_factory=dict[str, Mapping[str, Value]]
    )


def preferences_of(settings: InEffect, file: Path) -> Preferences:
    """The preferences among the settings in effect."""
    values: dict[str, Any] = {
        name: settings.values[name] for name in NAMES if name in settings.values
    }
    return Preferences(file, **values, keys=settings.keys, presets=settings.presets)
