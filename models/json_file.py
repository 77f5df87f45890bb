"""Small JSON files: read as empty if damaged, written whole or not at all."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from backends.base.atomic_file import write_whole
from backends.base.private_file import FILE_MODE, make_private_folder
from backends.base.regular_file import read_bounded

MOST_BYTES = 16 << 20
"""The longest genuine files list the weights of models with thousands of experts."""

_LOCK_SECONDS = 2.0
"""Longest wait for the lock, held for a read and a write."""


def read_object(path: Path) -> dict[str, Any]:
    """Object in a file, {} if it cannot be read."""
    try:
        value = json.loads(read_bounded(path, MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def write_object(path: Path, value: dict[str, Any]) -> None:
    """Replace a file's object; a failure leaves the file unchanged."""
    with contextlib.suppress(OSError):
        make_private_folder(path.parent)
        write_whole(path, json.dumps(value))


def change_object(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Replace a file's object by the result of change, and return the result.

    Processes take turns, so that no change is lost. If the file cannot be written or locked, it
    stays unchanged. change may run twice.
    """
    from filelock import FileLock, Timeout

    try:
        make_private_folder(path.parent)
        with FileLock(path.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=FILE_MODE):
            changed = change(read_object(path))
            write_whole(path, json.dumps(changed))
    except (OSError, Timeout, NotImplementedError):  # NotImplementedError: no locks on this disk
        return change(read_object(path))
    return changed
