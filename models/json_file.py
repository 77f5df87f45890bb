"""Small JSON files that are done without when they are damaged, and never left half written."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from backends.base.atomic_file import write_whole
from backends.base.private_file import FILE_MODE, make_private_folder
from backends.base.regular_file import read_bounded

MOST_BYTES = 16 << 20
"""The longest true ones list the weights of models with thousands of experts."""

_LOCK_SECONDS = 2.0
"""A process holds the lock for a read and a write."""


def read_object(path: Path) -> dict[str, Any]:
    """The object a file holds, an empty one where it cannot be had."""
    try:
        value = json.loads(read_bounded(path, MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def write_object(path: Path, value: dict[str, Any]) -> None:
    """Replace a file whole; where that is not possible, leave it."""
    with contextlib.suppress(OSError):
        make_private_folder(path.parent)
        write_whole(path, json.dumps(value))


def change_object(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Put what change makes of a file's object into its place, and return it.

    Processes that do so at once take turns, so that each changes what the others made. Where the
    file cannot be written, or its turn does not come, it stays as it is. change may run twice.
    """
    from filelock import FileLock, Timeout

    try:
        make_private_folder(path.parent)
        with FileLock(path.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=FILE_MODE):
            changed = change(read_object(path))
            write_whole(path, json.dumps(changed))
    except (OSError, Timeout, NotImplementedError):  # or no locks on this disk
        return change(read_object(path))
    return changed
