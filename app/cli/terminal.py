"""The one owner of standard error and of exit codes: standard output belongs to answers.

Standard error is always printable, whoever writes to it (`app/printable.py`). Standard output is
on a terminal; elsewhere it is data for a program, and an answer stays as it was said, byte by byte.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from app.cli.printable_stream import PrintableStream
from app.printable import one_line, printable_json
from backends.base import DownloadError, SpecchatError, UsageError

EXIT_DONE = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NETWORK = 3
EXIT_INTERRUPTED = 130

_ERASE = "\r\x1b[K"
_BAR = 24
_OWN_SCREEN = "".join(
    f"\x1b[{code}"
    for code in ("?2004l", "?7h", "?1000l", "?1003l", "?1015l", "?1006l", "<u", "?1049l", "?25h")
)
"""No pasting in brackets, no mouse, no extended keys, and the cursor: what the app had changed."""


class ReaderGoneError(Exception):
    """Nobody reads standard output any more; there is nothing to do but to end quietly."""


def exit_code(error: SpecchatError) -> int:
    """The code a command ends with after an error."""
    if isinstance(error, DownloadError):
        return EXIT_NETWORK
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR


_status_shown = False
_other_screen = False
_modes: list[Any] | None = None


def note(text: str) -> None:
    """A line the user should know of."""
    clear_status()
    _write(f"{text}\n")


def show_error(error: SpecchatError) -> None:
    """What happened and why in one line, whatever names are in it, and what to do."""
    note(f"specchat: {SpecchatError(one_line(error.what), one_line(error.why), error.remedy)}")


def status(text: str) -> None:
    """What is going on, replaced by the next one; only where someone can watch."""
    global _status_shown  # noqa: PLW0603 - there is one terminal
    if sys.stderr.isatty():
        _erase()
        _write(one_line(text)[: _width() - 1])
        _status_shown = True


def step(text: str) -> None:
    """A line on a step that is done; only where no status line can be watched."""
    if not sys.stderr.isatty():
        note(text)


def progress(done: int, planned: int, text: str) -> None:
    """A bar with what is being done, in place of a status line."""
    filled = _BAR * done // max(planned, 1)
    bar = "█" * filled + "░" * (_BAR - filled)
    status(f"{bar} {100 * done // max(planned, 1):3d} %  {text}")


def clear_status() -> None:
    """Take the status line away, if there is one: an answer may share its line."""
    global _status_shown  # noqa: PLW0603 - there is one terminal
    if _status_shown:
        _erase()
        _status_shown = False


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


def say_line(text: str) -> None:
    """A line of our own that names foreign things: one line, printable wherever it goes.

    Raises:
        ReaderGoneError: nobody reads standard output any more.
        SpecchatError: it cannot be written.
    """
    say(f"{one_line(text)}\n")


def say_json(value: object, indent: int | None = None) -> None:
    """A JSON value on standard output, escaped so that it is printable.

    Raises:
        ReaderGoneError: nobody reads standard output any more.
        SpecchatError: it cannot be written.
    """
    say(f"{printable_json(value, indent)}\n")


def leave(code: int) -> NoReturn:
    """End the program at once, whatever its other threads are at."""
    clear_status()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def abandon(code: int) -> NoReturn:
    """End the program at once from any thread, where the main one does not come back.

    The terminal gets its modes back, and its own screen where the app shows another.
    """
    erase = _ERASE if _status_shown else ""
    with contextlib.suppress(OSError, ValueError):
        _restore_modes()
        os.set_blocking(2, False)  # a terminal that takes nothing must not keep the program
        os.write(2, (_OWN_SCREEN if _other_screen else erase).encode())
        os.set_blocking(2, True)
    os._exit(code)


@contextlib.contextmanager
def other_screen() -> Iterator[None]:
    """While the app has the terminal."""
    global _other_screen  # noqa: PLW0603 - there is one terminal
    _other_screen = True
    try:
        yield
    finally:
        _other_screen = False


def _restore_modes() -> None:
    """Lines, echo and keys as they were when the program began."""
    if sys.platform == "win32" or _modes is None:
        return
    import termios

    with contextlib.suppress(termios.error):
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, _modes)


def _modes_now() -> list[Any] | None:
    if sys.platform == "win32" or not sys.stdin.isatty():
        return None
    import termios

    with contextlib.suppress(termios.error, OSError, ValueError):
        return termios.tcgetattr(sys.stdin.fileno())
    return None


def _stop_writing() -> None:
    """Let the interpreter's last flush go nowhere, quietly."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare() -> None:
    """Do with what the caller gave: closed streams go nowhere, odd encodings show a substitute.

    From here on nothing foreign drives the terminal.
    """
    global _modes  # noqa: PLW0603 - there is one terminal
    nothing = Path(os.devnull)
    sys.stdin = sys.stdin or nothing.open(encoding="utf-8")
    sys.stdout = sys.stdout or nothing.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nothing.open("w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    _modes = _modes_now()
    sys.stderr = _printable(sys.stderr)
    if sys.stdout.isatty():
        sys.stdout = _printable(sys.stdout)


def _printable(stream: TextIO) -> TextIO:
    return stream if isinstance(stream, PrintableStream) else cast(TextIO, PrintableStream(stream))


def _erase() -> None:
    """Begin the line of standard error anew."""
    with contextlib.suppress(OSError, ValueError):
        cast(PrintableStream, _printable(sys.stderr)).drive(_ERASE)


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _width() -> int:
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80
