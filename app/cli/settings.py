"""The settings file: options under their own names, read before the command line."""

import difflib
import tomllib
from pathlib import Path
from typing import Any

from app.paths import Paths
from backends.base import UsageError

_COMMON: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "draft": (str,),
    "backend": (str,),
    "ctx": (int,),
    "threads": (int,),
    "gpu_layers": (int,),
    "offline": (bool,),
}
_KNOWN = _COMMON | {
    "system": (str,),
    "temperature": (int, float),
    "top_k": (int,),
    "top_p": (int, float),
    "min_p": (int, float),
    "repeat_penalty": (int, float),
    "seed": (int,),
    "max_tokens": (int,),
}
_COMMANDS = ("ask", "chat", "verify")


def defaults(paths: Paths) -> dict[str, Any]:
    """Defaults for every command out of the settings file; empty where there is none.

    Raises:
        UsageError: the file cannot be read, a key is unknown or its value of the wrong kind.
    """
    try:
        settings = tomllib.loads(paths.settings.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the settings in {paths.settings}", str(error)) from error
    for key, value in settings.items():
        _check(key, value, paths.settings)
    common = {key: value for key, value in settings.items() if key in _COMMON}
    return {**common, **dict.fromkeys(_COMMANDS, settings)}


def _check(key: str, value: object, file: Path) -> None:
    if key not in _KNOWN:
        near = difflib.get_close_matches(key, _KNOWN, n=1)
        raise UsageError(
            f"{file} has an unknown key {key!r}",
            f"nearest: {near[0]}" if near else f"known: {', '.join(sorted(_KNOWN))}",
        )
    wanted = _KNOWN[key]
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise UsageError(
            f"{key} in {file} cannot be used",
            f"{value!r} is not of the kind {' or '.join(kind.__name__ for kind in wanted)}",
        )
