"""Standard error: notes, errors, and a status line where standard error is a terminal."""

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

from app.printable import one_line, printable
from backends.base import SpecchatError


class PrintableStream:
    """Makes all output printable: that of commands, libraries, warnings and Python itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def drive(self, sequence: str) -> None:
        self._stream.write(sequence)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # click would write to it where the encoding is ASCII
            raise AttributeError(name)
        return getattr(self._stream, name)


def printable_stream(stream: TextIO | PrintableStream) -> PrintableStream:
    """The stream itself if it is printable already, else a wrapper of it."""
    return stream if isinstance(stream, PrintableStream) else PrintableStream(stream)


ERASE_LINE = "\r\x1b[K"

_BAR_CELLS = 24
_PLAIN_LINE_SECONDS = 15.0
"""Time between two progress lines where standard error is no terminal."""

_last_line = time.monotonic()
_status_shown = False


def begin() -> None:
    """Measure the time until the first progress line from now."""
    global _last_line  # noqa: PLW0603 - there is one standard error
    _last_line = time.monotonic()


def status_shown() -> bool:
    return _status_shown


def note(text: str) -> None:
    clear_status()
    _write(f"{text}\n")


def remarks(*texts: str) -> None:
    """Write a note that is marked as one for each text that is not empty."""
    for text in filter(None, texts):
        note(f"note: {text}")


def show_error(error: SpecchatError) -> None:
    """Write the error and its cause on one line, whatever names are in it, then the remedy."""
    note(f"specchat: {SpecchatError(one_line(error.what), one_line(error.why), error.remedy)}")


def status(text: str) -> None:
    """Replace the status line; without a terminal, write a line from time to time."""
    global _status_shown  # noqa: PLW0603 - there is one terminal
    if sys.stderr.isatty():
        _erase()
        _write(one_line(text)[: _width() - 1])
        _status_shown = True
    elif time.monotonic() - _last_line >= _PLAIN_LINE_SECONDS:
        begin()
        note(one_line(text))


def step(text: str) -> None:
    """Write a line on a completed step, where no status line is visible."""
    if not sys.stderr.isatty():
        note(text)


def progress(done: int, planned: int, text: str) -> None:
    share = 100 * done // max(planned, 1)
    filled = _BAR_CELLS * done // max(planned, 1)
    bar = "█" * filled + "░" * (_BAR_CELLS - filled)
    status(f"{bar} {share:3d} %  {text}" if sys.stderr.isatty() else f"{share} %  {text}")


def clear_status() -> None:
    """Erase the status line, if there is one: an answer may share its line."""
    global _status_shown  # noqa: PLW0603 - there is one terminal
    if _status_shown:
        _erase()
        _status_shown = False


def _erase() -> None:
    with contextlib.suppress(OSError, ValueError):
        printable_stream(sys.stderr).drive(ERASE_LINE)


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _width() -> int:
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80
