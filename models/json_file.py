"""Small JSON files that are done without when they are damaged, and never left half written."""

import contextlib
import json
from pathlib import Path
from typing import Any, cast

from models.whole_file import write_whole


def read_object(path: Path) -> dict[str, Any]:
    """The object a file holds, an empty one where it cannot be had."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def write_object(path: Path, value: dict[str, Any]) -> None:
    """Replace a file whole; where that is not possible, leave it."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(value))
