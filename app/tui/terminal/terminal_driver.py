"""The terminal driver, which survives a terminal that closes while the app runs."""

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from textual.app import App
from textual.driver import Driver


class _ForgivingFile:
    """A terminal file that drops what it can no longer write.

    Textual's writer thread would end with the first error, and the app would wait for it forever.
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
    """The driver for this system's terminals, None for Textual's default."""
    if sys.platform == "win32" or os.environ.get("TEXTUAL_DRIVER"):
        return None
    from textual.drivers.linux_driver import LinuxDriver

    class TerminalDriver(LinuxDriver):
        """Keeps running without its terminal, so that the app can exit in order."""

        def __init__(self, app: App[Any], **options: Any) -> None:
            super().__init__(app, **options)  # pyright: ignore[reportUnknownMemberType]
            self._file: Any = _ForgivingFile(self._file)

    return TerminalDriver


def is_gone() -> bool:
    """Whether the terminal has closed; a process that ignores SIGHUP gets no signal for it."""
    if sys.platform == "win32" or sys.__stdin__ is None:
        return False
    import termios

    try:
        termios.tcgetattr(sys.__stdin__.fileno())
    except (termios.error, OSError, ValueError):
        return True
    return False
