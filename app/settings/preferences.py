"""Appearance and keys of the app: settings that no other command reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.paths import Paths
from app.settings import catalogue, file
from app.settings.catalogue import Value

NAMES = ("theme", "animations", "enter_sends", "panel")


@dataclass(frozen=True, slots=True)
class Preferences:
    """Settings of the app's screen.

    file: the settings file, which need not exist. keys: key bindings by name of action.
    """

    file: Path
    theme: str = ""
    animations: bool = True
    enter_sends: bool = True
    panel: str = "auto"
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    presets: Mapping[str, Mapping[str, Value]] = field(
        default_factory=dict[str, Mapping[str, Value]]
    )


def read_preferences(paths: Paths) -> Preferences:
    """Read preferences from the settings file and environment variables, which take precedence.

    Raises:
        UsageError: the file, or the value of a variable, cannot be used.
    """
    settings = file.read(paths.settings)
    values: dict[str, Any] = {name: settings[name] for name in NAMES if name in settings}
    for name in NAMES:
        if (value := catalogue.from_variable(name)) is not None:
            values[name] = value
    values["keys"] = settings.get(file.KEYS_TABLE, {})
    values["presets"] = settings.get(file.PRESETS_TABLE, {})
    return Preferences(paths.settings, **values)
