"""Keeps what is pasted from acting as keys: an escape character in it is a character.

Textual 8.2.8 reads a pasted escape as the beginning of a key, by which the paste falls apart: its
line ends send, its control characters are shortcuts.
"""

import sys
from collections.abc import Iterable, Iterator

from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

_ESCAPE = "\x1b"
_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_MARK = "\ufdd0"
"""Stands for a pasted escape on its way through the parser; no text has this noncharacter."""


class InertPaste:
    """Replaces the escapes in pastes by a mark, in a stream that comes in pieces of any size."""

    def __init__(self) -> None:
        self._is_pasting = False
        self._seen = ""
        """The end of what was passed on, as far as a paste may begin with it."""
        self._held = ""
        """What came of a paste and may be the beginning of its end."""

    def filtered(self, data: str) -> str:
        """What of the stream can be passed on now."""
        passed: list[str] = []
        data, self._held = self._held + data, ""
        while data:
            part, data = self._pasted(data) if self._is_pasting else self._typed(data)
            passed.append(part)
        return "".join(passed)

    def _typed(self, data: str) -> tuple[str, str]:
        """What comes before a paste, its beginning included, and the rest; nothing is held back."""
        text = self._seen + data
        place = text.find(_BEGIN)
        if place < 0:
            self._seen = _overlap(text, _BEGIN)
            return data, ""
        end = place + len(_BEGIN) - len(self._seen)
        self._is_pasting, self._seen = True, ""
        return data[:end], data[end:]

    def _pasted(self, data: str) -> tuple[str, str]:
        """What is pasted, its end included, and the rest."""
        text, end, rest = data.partition(_END)
        if end:
            self._is_pasting = False
        else:
            self._held = _overlap(text, _END)
            text = text[: len(text) - len(self._held)]
        return text.replace(_ESCAPE, _MARK) + end, rest


def _overlap(text: str, wanted: str) -> str:
    """The longest end of a text that what is wanted begins with."""
    lengths = range(min(len(text), len(wanted) - 1), 0, -1)
    return next((wanted[:length] for length in lengths if text.endswith(wanted[:length])), "")


class _Parser(XTermParser):
    """Tells a paste as one event, whatever is in it."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pastes = InertPaste()

    def feed(self, data: str) -> Iterable[Message]:
        passed = self._pastes.filtered(data)
        if passed or not data:  # nothing at all means the end of all input
            yield from _restored(super().feed(passed))


def _restored(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        if isinstance(message, events.Paste):
            yield events.Paste(message.text.replace(_MARK, _ESCAPE))
        else:
            yield message


def keep_pastes_inert() -> None:
    """Have the drivers of terminals read with this parser."""
    if sys.platform == "win32":
        from textual.drivers import win32 as driver
    else:
        from textual.drivers import linux_driver as driver
    driver.XTermParser = _Parser  # pyright: ignore
