"""The settings file: options under their own names, read before the command line."""

import difflib
import tomllib
from typing import Any

from app.paths import Paths
from backends.base import UsageError

COMMON = frozenset({"model", "draft", "backend", "ctx", "threads", "gpu_layers", "offline"})
SAMPLING = frozenset(
    {
        "system",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repeat_penalty",
        "seed",
        "max_tokens",
    }
)
_COMMANDS = ("ask", "chat")


def defaults(paths: Paths) -> dict[str, Any]:
    """Defaults for every command out of the settings file; empty where there is none.

    Raises:
        UsageError: the file cannot be read, or a key in it is unknown.
    """
    try:
        settings = tomllib.loads(paths.settings.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the settings in {paths.settings}", str(error)) from error
    known = COMMON | SAMPLING
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise UsageError(
                f"{paths.settings} has an unknown key {key!r}",
                f"nearest: {near[0]}" if near else f"known: {', '.join(sorted(known))}",
            )
    common = {key: value for key, value in settings.items() if key in COMMON}
    return {**common, **dict.fromkeys(_COMMANDS, settings)}
