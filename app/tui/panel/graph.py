"""The speed of the last minute: plain speed in grey, what drafting adds in its drafter's hue."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Self

from textual.content import Content

from app.tui.look import kind_of
from app.tui.panel.terms import MINUTE, MUTED, Line
from app.tui.store import Second

_LEAST = 1.5
"""Top of the scale over plain speed; doubled until the fastest second fits."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """Tokens a second at the top of the graph, and those of plain decoding if known."""

    top: float
    plain: float | None = None

    @classmethod
    def of(cls, minute: tuple[Second, ...], plain: float | None) -> Self:
        """The scale that holds every second; rates that are no finite number do not count."""
        peak = max((finite(second.rate) for second in minute), default=0.0)
        if plain is None or finite(plain) <= 0.0:
            return cls(_round_up(peak))
        top = _LEAST * plain
        while top < peak:
            top *= 2.0
        return cls(top, plain)

    def is_gain(self, rate: float, top: float) -> bool:
        """Whether a row of cells that ends at top shows what drafting adds to a rate."""
        if self.plain is None:
            return False
        return finite(rate) > self.plain and top > self.plain * (1.0 + _ROUNDING)


def finite(rate: float) -> float:
    return rate if math.isfinite(rate) and rate > 0.0 else 0.0


def _round_up(peak: float) -> float:
    """The next of 1, 2 and 5 times a power of ten; 1 for 0."""
    if peak <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(peak))
    return next(power * step for step in (1.0, 2.0, 5.0, 10.0) if power * step >= peak)


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
    if rate >= 9999.5:
        return f"{rate / 1000:>3.0f}k" if rate < 999_500 else " >1M"
    return f"{rate:>4.0f}" if rate >= 9.95 else f"{rate:>4.1f}"
