"""How the app looks, listens and learns: the settings that are no options of commands."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.paths import Paths
from app.settings import catalogue, file
from app.settings.catalogue import BY_NAME, Value
from backends.base import UsageError

NAMES = ("theme", "animations", "enter_sends", "panel", "retrieval")


@dataclass(frozen=True, slots=True)
class Preferences:
    """file: where they are kept, which need not exist. keys: by the name of an action."""

    file: Path
    theme: str = ""
    animations: bool = True
    enter_sends: bool = True
    panel: str = "auto"
    retrieval: bool = True
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
        variable = f"SPECCHAT_{name.upper()}"
        if text := os.environ.get(variable):
            values[name] = _parsed(name, text, variable)
    values["keys"] = settings.get(file.KEYS_TABLE, {})
    values["presets"] = settings.get(file.PRESETS_TABLE, {})
    return Preferences(paths.settings, **values)


def _parsed(name: str, text: str, variable: str) -> Value:
    try:
        return catalogue.parsed(BY_NAME[name], text)
    except UsageError as error:
        raise UsageError(f"{variable} cannot be {text!r}", error.why) from error
