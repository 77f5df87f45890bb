"""The speed of the last minute: plain speed in grey, what drafting adds in its drafter's hue."""

import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from textual.content import Content

from app.tui.live import Second
from app.tui.look.hues import kind_of
from app.tui.panel.line import MUTED, Line
from app.tui.panel.scale import Scale, finite
from app.tui.panel.terms import MINUTE

WIDTH = 38
_LABEL_WIDTH = 10
_CELLS = WIDTH - _LABEL_WIDTH
_FULL_PLAIN = "░"

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
_BRAILLE = 0x2800
_BLOCKS = " ▄█"
"""The heights that the Linux console's fonts have."""


@lru_cache(maxsize=4)
def graph(minute: tuple[Second, ...], plain: float | None, height: int = 3) -> list[Line]:
    """Two seconds to a cell, the newest at the right; blocks on the Linux console.

    minute: oldest second first. plain: tokens a second of plain decoding, None if not known.
    """
    if not minute:
        return [Line.of(term=MINUTE)] * height
    scale = Scale.of(minute, plain)
    seconds = minute[-2 * _CELLS :]
    blank = " " * (_CELLS - (len(seconds) + 1) // 2)
    return [
        Line(
            Content.assemble(blank, *_runs(_cells(row, height, scale, seconds)), (label, MUTED)),
            MINUTE,
        )
        for row, label in enumerate(_labels(scale, height))
    ]


def _runs(cells: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Neighbouring cells of one style together."""
    for style, run in groupby(cells, itemgetter(1)):
        yield "".join(cell for cell, _ in run), style


def _cells(
    row: int, height: int, scale: Scale, seconds: tuple[Second, ...]
) -> Iterator[tuple[str, str]]:
    """The cells of a row, counted from the top, each with its style."""
    per_row = scale.top / height
    floor = per_row * (height - 1 - row)
    odd = len(seconds) % 2
    pairs = [(Second(0.0), seconds[0])] if odd else []
    pairs += zip(seconds[odd::2], seconds[odd + 1 :: 2], strict=True)
    for pair in pairs:
        left, right = ((finite(second.rate) - floor) / per_row for second in pair)
        tallest = pair[0] if left > right else pair[1]
        if scale.is_gain(tallest.rate, floor + per_row) and tallest.drafter:
            yield _cell(left, right), kind_of(tallest.drafter).hue
        elif scale.plain is not None and _level(min(left, right), 4) == 4:
            yield _FULL_PLAIN, MUTED
        else:
            yield _cell(left, right), MUTED


def _cell(left: float, right: float) -> str:
    """A cell with two columns, given as parts of its height."""
    if os.environ.get("TERM") == "linux":
        return _BLOCKS[_level((left + right) / 2, 2)]
    dots = _LEFT[_level(left, 4)] | _RIGHT[_level(right, 4)]
    return chr(_BRAILLE + dots) if dots else " "


def _level(part: float, levels: int) -> int:
    return round(levels * min(max(part, 0.0), 1.0))


def _labels(scale: Scale, height: int) -> list[str]:
    """The top of the scale, plain speed below it, and 0 in the last row."""
    labels = [""] * height
    if height > 2:
        labels[-1] = f"{0:>4}"
    if height > 1 and scale.plain is not None:
        labels[height // 2] = f"{_short(scale.plain)} plain"
    labels[0] = _short(scale.top)
    return [f"{label:<{_LABEL_WIDTH}}" for label in labels]


def _short(rate: float) -> str:
    """A rate in four columns."""
    if rate >= 9999.5:
        return f"{rate / 1000:>3.0f}k" if rate < 999_500 else " >1M"
    return f"{rate:>4.0f}" if rate >= 9.95 else f"{rate:>4.1f}"
