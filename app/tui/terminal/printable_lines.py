"""Keeps control characters in any text from reaching the terminal.

There are two layers. Text that becomes Textual `Content` shows a visible stand-in for each control
character. Whatever else widgets paint, text fields for example, passes a filter of whole lines.
"""

import re

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

# Not exported; textual is pinned exactly. It removes five control characters by this table.
from textual.content import (
    _CONTROL_STRIP_TRANSLATE,  # pyright: ignore[reportPrivateUsage]
)
from textual.filter import LineFilter

from app.printable import STAND_INS, STOPPED_IN_LINE, line_stand_in


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
