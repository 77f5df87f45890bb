"""How the process takes over its streams and terminal, gives them back, and its exit codes."""

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from app.cli.terminal import stderr
from app.cli.terminal.stderr import printable_stream
from backends.base import DownloadError, ServerError, SpecchatError, UsageError

EXIT_DONE = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NETWORK = 3
EXIT_INTERRUPTED = 130


def exit_code(error: SpecchatError) -> int:
    if isinstance(error, DownloadError | ServerError):
        return EXIT_NETWORK
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR


_LEAVE_APP_SCREEN = "".join(
    f"\x1b[{code}"
    for code in ("?2004l", "?7h", "?1000l", "?1003l", "?1015l", "?1006l", "<u", "?1049l", "?25h")
)
"""Ends bracketed paste, mouse reports, extended keys and the alternate screen; shows the cursor."""

_other_screen = False
_modes: list[Any] | None = None


def prepare() -> None:
    """Replace closed streams, accept any encoding, and keep foreign text from driving a terminal.

    Writing to a closed standard output is an error: an answer would be lost without a word.
    Standard error is always printable, also for libraries; standard output only on a terminal.
    """
    global _modes  # noqa: PLW0603 - there is one terminal
    nothing = Path(os.devnull)
    sys.stdin = sys.stdin or nothing.open(encoding="utf-8")
    sys.stdout = sys.stdout or nothing.open(encoding="utf-8")
    sys.stderr = sys.stderr or nothing.open("w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    stderr.begin()
    _modes = _current_modes()
    sys.stderr = cast("TextIO", printable_stream(sys.stderr))
    if sys.stdout.isatty():
        sys.stdout = cast("TextIO", printable_stream(sys.stdout))


def leave(code: int) -> NoReturn:
    """End the process at once, without waiting for other threads."""
    stderr.clear_status()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _write_unblocked(output: bytes) -> None:
    """Write to standard error; a terminal that accepts no output must not block the end."""
    if sys.platform != "win32":
        os.set_blocking(2, False)
        os.write(2, output)
        os.set_blocking(2, True)
    else:
        os.write(2, output)


def abandon(code: int) -> NoReturn:
    """End the process at once from any thread, when the main thread does not respond.

    The terminal gets its modes back, and its main screen if the app shows the alternate one.
    """
    erase = stderr.ERASE_LINE if stderr.status_shown() else ""
    with contextlib.suppress(OSError, ValueError):
        _restore_modes()
        _write_unblocked((_LEAVE_APP_SCREEN if _other_screen else erase).encode())
    os._exit(code)


@contextlib.contextmanager
def other_screen() -> Generator[None, None, None]:
    """Mark the time during which the app shows the alternate screen."""
    global _other_screen  # noqa: PLW0603 - there is one terminal
    _other_screen = True
    try:
        yield
    finally:
        _other_screen = False


def _restore_modes() -> None:
    """Set line mode, echo and control keys as they were at the start."""
    if sys.platform == "win32" or _modes is None:
        return
    import termios

    with contextlib.suppress(termios.error):
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, _modes)


def _current_modes() -> list[Any] | None:
    if sys.platform == "win32" or not sys.stdin.isatty():
        return None
    import termios

    with contextlib.suppress(termios.error, OSError, ValueError):
        return termios.tcgetattr(sys.stdin.fileno())
    return None
