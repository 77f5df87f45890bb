"""Temporary files of programs that were killed: they end in the number of their process."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"\..+\.(\d+)")
_LEFTOVER_SECONDS = 60.0
"""Longer than any of ours rests while it is written: a program in a container may be at work on it,
whose process cannot be seen from here."""


def remove_leftovers(root: Path) -> None:
    """Remove what killed programs left in a folder of ours, or a file that one of them left.

    What a program at work writes stays.
    """
    for path, process in _temporary(root):
        with suppress(OSError):
            written = path.stat().st_mtime
            if time.time() - written > _LEFTOVER_SECONDS and not _is_at_work(process, written):
                path.unlink()


def _temporary(root: Path) -> Iterator[tuple[Path, int]]:
    inside = (Path(place, name) for place, _, names in os.walk(root) for name in names)
    for path in inside if root.is_dir() else (root,):
        if found := _NAME.fullmatch(path.name):
            yield path, int(found[1])


def _is_at_work(process: int, written: float) -> bool:
    """Whether a process runs that may have written at this time, and none that got its number."""
    import psutil

    try:
        return psutil.Process(process).create_time() <= written
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        return False
    except psutil.Error:
        return True
