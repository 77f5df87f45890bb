"""The terminal below Textual: input, output, clipboard and signals."""

import asyncio
import os
import re
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

import pyperclip
from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.color import Color
from textual.content import (
    _CONTROL_STRIP_TRANSLATE,  # pyright: ignore[reportPrivateUsage]
)
from textual.driver import Driver
from textual.filter import LineFilter
from textual.message import Message

from app.printable import STAND_INS, STOPPED_IN_LINE, line_stand_in, one_line
from app.process import END_SIGNALS, code_after, heeded
from backends.chat.message import whole_characters


def copy(app: App[Any], text: str, what: str) -> str:
    """Copy a text, by the terminal's clipboard where there is no other; returns what to tell."""
    text = whole_characters(text)
    try:
        pyperclip.copy(text)
    except pyperclip.PyperclipException:
        app.copy_to_clipboard(text)
    return f"Copied {what}."


_KEEP_TITLE, _TITLE, _TITLE_BEFORE = "\x1b[22;2t", "\x1b]2;{}\x07", "\x1b[23;2t"
_NOTIFY = "\x1b]9;{}\x07"
_NOTIFY_ELSEWHERE = "\x1b]777;notify;specchat;{}\x07"
"""For foot and rxvt; most others know the one above, or leave it."""

_NO_TITLES = ("linux", "dumb", "")
"""Values of TERM of terminals that have neither, and might show the sequences."""


class OutsideWindow:
    """What is seen of the app while its terminal is not looked at: title, bell, notifications."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._title = ""
        self._has_one = os.environ.get("TERM", "") not in _NO_TITLES or os.name == "nt"

    def show_title(self, title: str) -> None:
        if title != self._title:
            kept = "" if self._title else _KEEP_TITLE
            self._title = title
            self._write(kept + _TITLE.format(one_line(title)))

    def restore_title(self) -> None:
        if self._title:
            self._write(_TITLE_BEFORE)

    def notify(self, text: str) -> None:
        """Ring the bell, and have a notification shown where the terminal can."""
        elsewhere = os.environ.get("TERM", "").startswith(("foot", "rxvt"))
        told = one_line(text).replace(";", ",")
        self._write((_NOTIFY_ELSEWHERE if elsewhere else _NOTIFY).format(told))
        self._app.bell()

    def _write(self, sequence: str) -> None:
        driver = self._app._driver  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        if driver is not None and self._has_one:
            driver.write(sequence)


class ExitSignals:
    """Handles the signals that end the app. code: the exit code, None while there was no signal."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._exit: Callable[[], object] | None = None

    @contextmanager
    def handled(self) -> Generator[None, None, None]:
        numbers = heeded((signal.SIGINT, *END_SIGNALS))
        previous = [(number, signal.signal(number, self._handle)) for number in numbers]
        try:
            yield
        finally:
            for number, handler in previous:
                signal.signal(number, handler)

    def on_signal(self, exit_app: Callable[[], object]) -> None:
        """Call `exit_app` in the running event loop on a signal, or now if one has arrived."""
        loop = asyncio.get_running_loop()
        self._exit = lambda: loop.call_soon_threadsafe(exit_app)
        if self.code is not None:
            self._exit()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.code is None:  # a closing terminal sends two: by the system and by the shell
            self.code = code_after(number)
            if self._exit is not None:
                with suppress(RuntimeError):  # the loop is closed: the app is exiting already
                    self._exit()


# Keeps escape characters in pasted text from acting as keys, and long pastes from taking long.
#
# Textual 8.2.8 parses a pasted escape as the start of a key, which breaks the paste apart: its line
# ends send the prompt, its control characters act as shortcuts. It also takes seconds per megabyte.

_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_MARK = "\ufdd0"
"""Replaces a pasted text on its way through the parser."""


class InertPaste:
    """Takes pasted texts out of a stream that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._is_pasting = False
        self._seen = ""
        """The end of the passed input, if it may be part of the start marker of a paste."""
        self._held = ""
        """The end of the pasted input, if it may be part of the end marker."""
        self._parts: list[str] = []
        """What was pasted so far."""
        self._texts: deque[str] = deque()
        """Pastes of which the end has come, oldest first."""

    def filtered(self, data: str) -> str:
        """The part of the stream that can be passed on now."""
        passed: list[str] = []
        data, self._held = self._held + data, ""
        while data:
            part, data = self._pasted(data) if self._is_pasting else self._typed(data)
            passed.append(part)
        return "".join(passed)

    def next_paste(self) -> events.Paste:
        """The oldest paste that has ended and was not taken yet."""
        return events.Paste(self._texts.popleft().replace("\0", ""))

    def _typed(self, data: str) -> tuple[str, str]:
        """Split input at a paste's start marker, which is passed on; nothing is held back."""
        text = self._seen + data
        start = text.find(_BEGIN)
        if start < 0:
            self._seen = _overlap(text, _BEGIN)
            return data, ""
        end = start + len(_BEGIN) - len(self._seen)
        self._is_pasting, self._seen = True, ""
        return data[:end], data[end:]

    def _pasted(self, data: str) -> tuple[str, str]:
        """Split input at the paste's end marker, which is passed on behind a mark."""
        text, end, rest = data.partition(_END)
        if end:
            self._is_pasting = False
        else:
            self._held = _overlap(text, _END)
            text = text[: len(text) - len(self._held)]
        self._parts.append(text)
        if not end:
            return "", ""
        self._texts.append("".join(self._parts))
        self._parts.clear()
        return _MARK + end, rest


def _overlap(text: str, marker: str) -> str:
    """The longest suffix of a text that is a proper prefix of the marker."""
    lengths = range(min(len(text), len(marker) - 1), 0, -1)
    return next((marker[:length] for length in lengths if text.endswith(marker[:length])), "")


class _Parser(XTermParser):
    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pastes = InertPaste()

    def feed(self, data: str) -> Iterable[Message]:
        passed = self._pastes.filtered(data)
        if passed or not data:  # empty data means the end of input
            for message in super().feed(passed):
                is_paste = isinstance(message, events.Paste)
                yield self._pastes.next_paste() if is_paste else message


def keep_pastes_inert() -> None:
    """Make Textual's terminal driver use this parser."""
    if sys.platform == "win32":
        from textual.drivers import win32 as driver
    else:
        from textual.drivers import linux_driver as driver
    driver.XTermParser = _Parser  # pyright: ignore


# Keeps control characters in any text from reaching the terminal.
#
# There are two layers. Text that becomes Textual `Content` shows a visible stand-in for each
# control character. Whatever else widgets paint, text fields for example, passes a filter of whole
# lines.

# Not exported; textual is pinned exactly. It removes five control characters by this table.


def show_stand_ins() -> None:
    """Make every Content show stand-ins, in Textual's own widgets too."""
    _CONTROL_STRIP_TRANSLATE.update(STAND_INS)  # pyright: ignore


class PrintableLines(LineFilter):
    """Removes control characters and hyperlinks from each painted line.

    Lines are already laid out, so characters without width are removed without a stand-in.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        del background
        return [_printable(segment) for segment in segments]


def _printable(segment: Segment) -> Segment:
    text, style, control = segment
    if style is not None and style.link:
        style = style.update_link(None)
    elif text.isprintable() or STOPPED_IN_LINE.search(text) is None:
        return segment
    return Segment(STOPPED_IN_LINE.sub(_stand_in_of_same_width, text), style, control)


def _stand_in_of_same_width(character: re.Match[str]) -> str:
    return line_stand_in(character[0]) if cell_len(character[0]) else ""


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
    if sys.platform == "win32" or os.environ.get("TEXTUAL_DRIVER"):
        return None
    from textual.drivers.linux_driver import LinuxDriver

    class TerminalDriver(LinuxDriver):
        """Keeps running without its terminal, so that the app can exit in order."""

        def __init__(self, app: App[Any], **options: Any) -> None:
            super().__init__(app, **options)  # pyright: ignore[reportUnknownMemberType]
            self._file: Any = _ForgivingFile(self._file)

        def start_application_mode(self) -> None:
            typed = _typed_ahead(self.fileno)
            super().start_application_mode()
            for message in _Parser().feed(typed) if typed else ():
                self.process_message(message)

    return TerminalDriver


def _typed_ahead(terminal: int) -> str:
    """What was typed before the app reads keys; till then the terminal makes Enter a line end."""
    if sys.platform == "win32":
        return ""
    import termios
    import tty

    try:
        before = termios.tcgetattr(terminal)
        typed = b""
        tty.setcbreak(terminal, termios.TCSANOW)
        while select.select([terminal], [], [], 0)[0] and (piece := os.read(terminal, 1 << 12)):
            typed += piece
        termios.tcsetattr(terminal, termios.TCSANOW, before)
    except (termios.error, OSError, ValueError):  # no terminal, or it has closed
        return ""
    return typed.decode(errors="replace").replace("\n", "\r")


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
