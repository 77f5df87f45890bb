"""What charts are drawn of, and the small sums that place it. Units are those of the drawing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from app.bench.results import PLAIN

WIDTH = 460.0
"""So narrow that letters stay readable on a phone; two charts fit side by side on a desk."""

_LETTER = 0.6
"""Width of a letter in units of the font's size, on average, in a wide font."""

_COLOURS = 6

FIXED = ", always "
"""Stands between a drafter and its length in the name of a method whose drafts do not adapt."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A bar, with what it says when pointed at."""

    shape: ClassVar[str] = "rectangle"
    x: float
    y: float
    width: float
    height: float
    style: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line: a grid, a whisker, a mark."""

    shape: ClassVar[str] = "line"
    x1: float
    y1: float
    x2: float
    y2: float
    style: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points, as SVG writes them."""

    shape: ClassVar[str] = "curve"
    points: str
    style: str


@dataclass(frozen=True, slots=True)
class Circle:
    """A point, with what it says when pointed at."""

    shape: ClassVar[str] = "circle"
    x: float
    y: float
    radius: float
    style: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text; anchor is start, middle or end."""

    shape: ClassVar[str] = "text"
    x: float
    y: float
    text: str
    style: str
    anchor: str = "start"


Shape = Rectangle | Line | Curve | Circle | Text


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing and its words for those who do not see it."""

    title: str
    description: str
    height: float
    shapes: tuple[Shape, ...]
    width: float = WIDTH


@dataclass(frozen=True, slots=True)
class Scale:
    """From figures to places on an axis."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value stands."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)


def ticks(most: float, count: int = 6) -> list[float]:
    """Round numbers from 0 up to most, at most so many and one."""
    if most <= 0:
        return [0.0]
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [round(number * step, 9) for number in range(int(most / step + 1e-9) + 1)]


def text_width(text: str, size: float) -> float:
    """About how wide a text is."""
    return len(text) * size * _LETTER


def shortened(text: str, room: float, size: float) -> str:
    """A text that fits, with its middle left out where it is too long."""
    letters = max(int(room / (size * _LETTER) + 0.01), 5)
    if len(text) <= letters:
        return text
    tail = (letters - 1) // 2
    return f"{text[: letters - 1 - tail]}…{text[-tail:]}"


def kept_within(x: float, width: float, low: float, high: float) -> float:
    """The middle nearest to x at which something so wide stays between low and high."""
    return max(min(x, high - width / 2), low + width / 2)


def spread_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, in the same order, that keep a gap and stay within bounds."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = [0.0] * len(wanted)
    lowest = low
    for index in order:
        placed[index] = max(wanted[index], lowest)
        lowest = placed[index] + gap
    highest = high
    for index in reversed(order):
        placed[index] = min(placed[index], highest)
        highest = placed[index] - gap
    return placed


def points(places: Sequence[tuple[float, float]]) -> str:
    """Places as a curve wants them."""
    return " ".join(f"{x:g},{y:g}" for x, y in places)


def colours(methods: Sequence[str]) -> dict[str, str]:
    """The style of each method, alike in every chart; auto and plain always look the same.

    A drafter at a fixed length has the colour of the drafter, paler.
    """
    drafting = [name for name in methods if name != PLAIN]
    families = list(dict.fromkeys(map(_family, drafting)))
    families.sort(key=lambda family: family != "auto")
    styles = {PLAIN: "c0"}
    for name in drafting:
        own = f"c{1 + families.index(_family(name)) % _COLOURS}"
        others = sum(style.split()[0] == own for style in styles.values())
        styles[name] = own if name == _family(name) else f"{own} pale{min(max(others, 1), 3)}"
    return styles


def _family(method: str) -> str:
    return method.split(FIXED, maxsplit=1)[0]
