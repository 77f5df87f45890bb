"""Small JSON and TOML files, read within bounds; JSON is written whole or not at all."""

import contextlib
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from backends.base.safe_files import FILE_MODE, make_private_folder, read_bounded, write_whole

MOST_BYTES = 16 << 20
"""The longest genuine files list the weights of models with thousands of experts."""

MOST_NAMES = 1000

_LOCK_SECONDS = 30.0
"""Longest wait for the lock, held for a read and a write: on a processor with twenty busy programs
changes of two that wrote at once were lost after 2 s."""


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


@dataclass(frozen=True, slots=True)
class NameList:
    """Names under a key of a file's object, the latest last; damaged entries are ignored."""

    file: Path
    key: str

    def __contains__(self, name: str) -> bool:
        return name in self._of(read_object(self.file))

    def add(self, name: str) -> None:
        """Add a name; the oldest are dropped. A failure leaves the file unchanged."""

        def added(before: dict[str, Any]) -> dict[str, Any]:
            others = [other for other in self._of(before) if other != name]
            return {"schema": 1, self.key: [*others, name][-MOST_NAMES:]}

        change_object(self.file, added)

    def _of(self, record: dict[str, Any]) -> list[str]:
        names = record.get(self.key) if record.get("schema") == 1 else None
        return list(map(str, cast("list[Any]", names))) if isinstance(names, list) else []


_LONG_KEY = re.compile(r"""(?:["']?[\w-]{1,64}["']?\s{0,8}\.\s{0,8}){500}""")
"""A key for which the parser would take as many steps as the square of its parts."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError: it is invalid, or nested too deep."""
    if _LONG_KEY.search(text):
        raise ValueError("it has a key of more than 500 parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
