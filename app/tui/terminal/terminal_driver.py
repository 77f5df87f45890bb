"""The terminal the app is shown in, which may go away while the app runs."""

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from textual.driver import Driver

if TYPE_CHECKING:
    from textual.app import App


class _Forgiving:
    """A terminal to write to. What it cannot take any more is dropped.

    Textual writes in a thread that would end with the first error, and waits for it ever after.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()


def driver_class() -> type[Driver] | None:
    """What shows the app in this system's terminals, None for Textual's own choice."""
    if sys.platform == "win32" or os.environ.get("TEXTUAL_DRIVER"):
        return None
    from textual.drivers.linux_driver import LinuxDriver

    class TerminalDriver(LinuxDriver):
        """Goes on without a terminal that was closed, so that the app can end in order."""

        def __init__(self, app: "App[Any]", **options: Any) -> None:
            super().__init__(app, **options)
            self._file: Any = _Forgiving(self._file)

    return TerminalDriver


def is_gone() -> bool:
    """Whether the terminal was closed: no signal tells of it where that is ignored."""
    if sys.platform == "win32" or sys.__stdin__ is None:
        return False
    import termios

    try:
        termios.tcgetattr(sys.__stdin__.fileno())
    except (termios.error, OSError, ValueError):
        return True
    return False
