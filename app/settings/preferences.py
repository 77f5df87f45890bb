"""Settings of the app that no other command reads: how it looks, its keys, reading ahead."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.settings.catalogue import DEFAULT_THEME, Value
from app.settings.in_effect import InEffect
from app.settings.reading_ahead import AHEAD_AUTO, DEFAULT_AHEAD_WASTE

NAMES = ("theme", "animations", "enter_sends", "panel", "ahead", "ahead_waste")


@dataclass(frozen=True, slots=True)
class Preferences:
    """Settings of the app.

    file: the settings file, which need not exist. keys: key bindings by name of action. ahead:
    when to read ahead. ahead_waste: processor seconds a message that it may waste.
    """

    file: Path
    theme: str = DEFAULT_THEME
    animations: bool = True
    enter_sends: bool = True
    panel: str = "auto"
    ahead: str = AHEAD_AUTO
    ahead_waste: float = DEFAULT_AHEAD_WASTE
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
