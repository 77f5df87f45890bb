"""Tells a training in another process that an answer is in progress here, so that it waits.

The mark is a file that only training makes: its age is the time since some process last answered.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from backends.base.safe_files import make_private_folder, private_opener

_EVERY = 1.0
"""Seconds between two marks during an answer."""

_RECENT = 5.0
"""Seconds after which no answer is in progress any more: some passes of a large model, and the
pause of who reads a short answer and asks again. A guess; not measured."""


class AnsweringMark:
    """For who answers; costs nothing where nobody trains."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marked = 0.0

    def touch(self) -> None:
        """Note that an answer is in progress; to be called at its start and each step."""
        now = time.monotonic()
        if now - self._marked >= _EVERY:
            self._marked = now
            with suppress(OSError):
                os.utime(self._path)


def listen(path: Path) -> None:
    """Make the mark, which answers from now on touch. Raises OSError: it cannot be written."""
    make_private_folder(path.parent)
    with open(path, "ab", opener=private_opener):
        pass
    os.utime(path, (0.0, 0.0))


def is_answering(path: Path) -> bool:
    """Whether a process answers, or did a moment ago."""
    with suppress(OSError):
        return abs(time.time() - path.stat().st_mtime) < _RECENT
    return False
