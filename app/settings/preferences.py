"""How the app looks and listens: the settings that no command but the app needs."""

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
    """file: where they are kept, which need not exist. keys: by the name of an action."""

    file: Path
    theme: str = ""
    animations: bool = True
    enter_sends: bool = True
    panel: str = "auto"
    keys: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


def read_preferences(paths: Paths) -> Preferences:
    """Out of variables and the settings file; a variable wins.

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
