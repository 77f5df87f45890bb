"""Keeps escape characters in pasted text from acting as keys, and long pastes from taking long.

Textual 8.2.8 parses a pasted escape as the start of a key, which breaks the paste apart: its line
ends send the prompt, its control characters act as shortcuts. It also takes seconds per megabyte.
"""

import sys
from collections import deque
from collections.abc import Iterable

from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

_ESCAPE = "\x1b"
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
    """Reports a paste as one event, whatever it contains."""

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
