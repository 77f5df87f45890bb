"""Reads the settings file as defaults of the commands."""

from typing import Any

from app.paths import Paths
from app.settings import file
from app.settings.catalogue import BY_NAME, Part

_COMMON = ("model", "draft", *(key.name for key in BY_NAME.values() if key.part is Part.START))
_COMMANDS = ("ask", "chat", "serve", "verify")


def defaults(paths: Paths) -> dict[str, Any]:
    """Defaults of every command from the settings file; {} if there is no file.

    Raises:
        UsageError: the file cannot be read, a key is unknown or its value cannot be used.
    """
    settings = {name: value for name, value in file.read(paths.settings).items() if name in BY_NAME}
    common = {name: value for name, value in settings.items() if name in _COMMON}
    if not settings:
        return {}
    return {**common, **dict.fromkeys(_COMMANDS, settings), "models": {"pair": common}}
