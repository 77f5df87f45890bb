"""The one owner of standard error and of exit codes: standard output belongs to answers."""

import contextlib
import os
import sys

from backends.base import SpecchatError, UsageError

EXIT_DONE = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class ReaderGoneError(Exception):
    """Nobody reads standard output any more; there is nothing to do but to end quietly."""


def exit_code(error: SpecchatError) -> int:
    """The code a command ends with after an error."""
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR


def note(text: str) -> None:
    """A line the user should know of."""
    _write(f"{_erase()}{text}\n")


def show_error(error: SpecchatError) -> None:
    """What happened, why, and what to do."""
    note(f"specchat: {error}")


def status(text: str) -> None:
    """What is going on, replaced by the next one; only where someone can watch."""
    if sys.stderr.isatty():
        width = _width()
        _write(f"{_erase()}{text[: width - 1]}")


def clear_status() -> None:
    """Take the status line away."""
    _write(_erase())


def say(text: str) -> None:
    """Part of an answer, at once, on standard output.

    Raises:
        ReaderGoneError: its pipe was closed.
        SpecchatError: it cannot be written, for example onto a full disk.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        _stop_writing()
        raise ReaderGoneError from error
    except OSError as error:
        _stop_writing()
        raise SpecchatError("cannot write the answer", error.strerror or str(error)) from error


def _stop_writing() -> None:
    """Let the interpreter's last flush go nowhere, quietly."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def use_any_encoding() -> None:
    """Show a replacement for characters the terminal cannot, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _erase() -> str:
    return "\r\x1b[K" if sys.stderr.isatty() else ""


def _width() -> int:
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns
    return 80
