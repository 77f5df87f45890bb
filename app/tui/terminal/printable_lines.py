"""Two places through which all goes that any widget shows: nothing there drives the terminal.

Text becomes Content with a visible stand-in for each character that is stopped. What widgets paint
without Content (text fields) passes the filter of lines, as does everything else.
"""

import re

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

# Not exported; textual is pinned exactly. It removes five control characters by this table.
from textual.content import _CONTROL_STRIP_TRANSLATE
from textual.filter import LineFilter

from app.printable import STAND_INS, STOPPED_IN_LINE, line_stand_in


def show_stand_ins() -> None:
    """Have every Content, of Textual's own widgets too, show what stands in."""
    _CONTROL_STRIP_TRANSLATE.update(STAND_INS)  # pyright: ignore


class PrintableLines(LineFilter):
    """The last look at each line before it is painted: no control characters and no hyperlinks.

    A line was laid out already, so what has no width goes without a trace.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [_printable(segment) for segment in segments]


def _printable(segment: Segment) -> Segment:
    text, style, control = segment
    if style is not None and style.link:
        style = style.update_link(None)
    elif text.isprintable() or STOPPED_IN_LINE.search(text) is None:
        return segment
    return Segment(STOPPED_IN_LINE.sub(_of_same_width, text), style, control)


def _of_same_width(found: re.Match[str]) -> str:
    return line_stand_in(found[0]) if cell_len(found[0]) else ""
