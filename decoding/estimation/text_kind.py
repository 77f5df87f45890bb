"""Kind of the text being written; drafters are better at some kinds than at others."""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum

_FENCE = re.compile(rb"\s{0,3}(```|~~~)")
_ITEM = re.compile(rb"\s*([-*+]|\d{1,3}[.)]|\xe2\x80\xa2)\s")
_BLOCK_QUOTE = re.compile(rb"\s{0,3}>")
_OPENING, _CLOSING = "“".encode(), "”".encode()


class TextKind(StrEnum):
    PROSE = "prose"
    LIST = "list"
    CODE = "code"
    QUOTE = "quote"


class TextKindReader:
    """Classifies the end of a reply as it grows.

    piece: the bytes that a token adds to the text.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self.begin()

    def another(self) -> "TextKindReader":
        """One for another text."""
        return TextKindReader(self._piece)

    def begin(self) -> None:
        self._line = b""
        self._in_fence = False
        self._in_list = False

    def feed(self, tokens: Sequence[int]) -> None:
        """Add the tokens of a step."""
        *ended, rest = b"".join(map(self._piece, tokens)).split(b"\n")
        for text in ended:
            self._line += text
            self._end_line()
        self._line += rest

    def _end_line(self) -> None:
        self._in_list = self.current is TextKind.LIST and bool(self._line.strip())
        self._in_fence ^= _FENCE.match(self._line) is not None
        self._line = b""

    @property
    def current(self) -> TextKind:
        line = self._line
        if self._in_fence or _FENCE.match(line):
            return TextKind.CODE
        if _BLOCK_QUOTE.match(line) or _is_in_quotation(line):
            return TextKind.QUOTE
        # At the start of a line it is open whether a list goes on; most do.
        goes_on = self._in_list and not line.strip()
        return TextKind.LIST if goes_on or _ITEM.match(line) else TextKind.PROSE


def _is_in_quotation(line: bytes) -> bool:
    """Whether a quotation that began on the line is still open."""
    return line.count(b'"') % 2 == 1 or line.rfind(_OPENING) > line.rfind(_CLOSING)
