"""The speed of the last minute: plain speed in grey, what drafting adds in its drafter's hue."""

import os
from collections.abc import Iterator
from typing import ClassVar

from textual.content import Content

from app.tui.live import Second
from app.tui.look.hues import kind_of
from app.tui.panel.figure_row import FigureRow
from app.tui.panel.scale import Scale, finite

_LABEL_WIDTH = 10
_GREY = "$text-muted"
_FULL_GREY = "░"

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
_BRAILLE = 0x2800
_BLOCKS = " ▄█"
"""The heights that the Linux console's fonts have."""


class Graph(FigureRow):
    """Two seconds to a cell, the newest at the right; blocks on the Linux console."""

    DEFAULT_CSS: ClassVar[str] = "Graph { height: 3; width: 38; }"

    def __init__(self, help_text: str) -> None:
        super().__init__(help_text)
        self._minute: tuple[Second, ...] = ()
        self._plain: float | None = None
        self._has_braille = os.environ.get("TERM") != "linux"

    def show_minute(self, minute: tuple[Second, ...], plain: float | None) -> None:
        """Show the last minute, oldest second first, and the rate of plain decoding."""
        if (minute, plain) != (self._minute, self._plain):
            self._minute, self._plain = minute, plain
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        """Draw every row; the widget repaints only if one of them differs."""
        width, height = self.size.width - _LABEL_WIDTH, self.size.height
        if width <= 0 or height <= 0 or not self._minute:
            self.show("")
            return
        scale = Scale.of(self._minute, self._plain)
        seconds = self._minute[-2 * width :]
        blank = " " * (width - (len(seconds) + 1) // 2)
        rows = [
            Content.assemble(blank, *self._cells(row, height, scale, seconds), label)
            for row, label in enumerate(_labels(scale, height))
        ]
        self.show(Content("\n").join(rows))

    def _cells(
        self, row: int, height: int, scale: Scale, seconds: tuple[Second, ...]
    ) -> Iterator[tuple[str, str]]:
        """The cells of a row, counted from the top, each with its style."""
        floor = scale.top * (height - 1 - row) / height
        per_row = scale.top / height
        odd = len(seconds) % 2
        pairs = [(Second(0.0), seconds[0])] if odd else []
        pairs += zip(seconds[odd::2], seconds[odd + 1 :: 2], strict=True)
        for left, right in pairs:
            heights = [(finite(one.rate) - floor) / per_row for one in (left, right)]
            tallest = left if heights[0] > heights[1] else right
            is_gain = scale.plain is not None and floor + per_row > scale.plain * (1 + 1e-9)
            if is_gain and tallest.drafter and tallest.rate > (scale.plain or 0.0):
                yield self._cell(*heights), kind_of(tallest.drafter).hue
            else:
                is_full = scale.plain is not None and _level(min(heights), 4) == 4
                yield _FULL_GREY if is_full else self._cell(*heights), _GREY

    def _cell(self, left: float, right: float) -> str:
        """A cell with two columns, given as parts of its height."""
        if not self._has_braille:
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
    """A rate in four columns, or as few as it needs."""
    if rate >= 9999.5:
        return f"{rate / 1000:>3.0f}k"
    return f"{rate:>4.0f}" if rate >= 9.95 else f"{rate:>4.1f}"
