"""Standard output: answers and results only.

On a terminal everything is made printable; in a pipe or a file an answer is written unchanged.
"""

import contextlib
import os
import sys

from app.printable import one_line, printable_json
from backends.base import SpecchatError


class ReaderGoneError(Exception):
    """The reader of standard output closed its pipe: end quietly."""


def write(text: str) -> None:
    """Write and flush.

    Raises:
        ReaderGoneError: the pipe is closed.
        SpecchatError: the text cannot be written, for example because the disk is full.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        _discard_the_rest()
        raise ReaderGoneError from error
    except OSError as error:
        _discard_the_rest()
        why = error.strerror or "standard output is closed"
        raise SpecchatError("cannot write the answer", why) from error


def write_line(text: str) -> None:
    """Write one printable line, whatever names are in it; raises as `write` does."""
    write(f"{one_line(text)}\n")


def write_json(value: object) -> None:
    """Write a printable JSON value: indented on a terminal, else on one line."""
    write(f"{printable_json(value, 2 if sys.stdout.isatty() else None)}\n")


def _discard_the_rest() -> None:
    """Redirect standard output to the null device, so that the last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
