"""The speed of the last minute: plain speed in grey, what drafting adds in its drafter's hue.

A thin line stands at the height of plain speed.
"""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Protocol, Self, runtime_checkable

from textual.content import Content

from app.printable import one_line
from app.tui.look import family_of, kind_of
from app.tui.store import Second
from app.tui.widgets import MUTED
from backends.files.gguf_drafter import TrainedKind

# The lines of the panel, and what each figure and drafter is.

_FREE = "; free"
_TRAINED = frozenset(kind.word for kind in TrainedKind)


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    text: str
    joint: str = ": "

    @property
    def sentence(self) -> str:
        text = self.text.removesuffix(_FREE)
        return f"{self.name}{self.joint}{text}.{' It is free.' if text != self.text else ''}"


SPEED = Term("speed", "tokens a second; a token is about three quarters of a word")
PLAIN = Term("plain", "the model alone, without drafts")
GAIN = Term("gain", "this answer's speed over plain, both measured in this answer")
DRAFTED = Term("drafted", "the share of this answer that drafters guessed and the model confirmed")
ACCEPTED = Term("accepted", "drafted tokens that the model confirmed")
PAUSED = Term("paused", "drafting would be slower now; it is retried automatically")
FULL = Term("context", "how much of what the model can see is used: a share of its tokens")
LOSSY = Term("lossy", "drafts may change the answer; the default rules never do")
SESSION = Term("this session", "all its answers together, so small gains and losses show too")
STEP = Term("A step", "is one pass of the model: it checks a draft and adds one token", " ")
START = Term("first token", "when the answer began; ready is what was read before you asked")
IN_A_ROW = Term("in a row", "a draft counts up to the first token that the model rejects")
TIME = Term("time", "what an answer spent in the model, in its drafters and elsewhere")
LIMIT = Term("memory limit", "each plain token reads all weights once; none can be faster")
MEMORY = Term("memory", "weights of the model and its drafters; chat grows with the context")
MINUTE = Term("last minute", "plain speed is grey, what drafting adds has its drafter's colour")

_DRAFTERS = {
    term.name: term
    for term in (
        Term("lookup", f"copies from what was said in this chat{_FREE}", " "),
        Term("retrieval", f"copies from what was said in your other chats{_FREE}", " "),
        Term("ngram", f"continues with this model's common phrases{_FREE}", " "),
        Term("self", "this model at lower precision guesses ahead"),
        Term("lookahead", "the model guesses further tokens beside its own work"),
    )
}

_OF_ONE_REPLY = {
    term.name: term
    for term in (
        Term("prediction", f"copies from the text that was predicted for this answer{_FREE}", " "),
        Term("documents", f"copies from files and pasted text, without line breaks{_FREE}", " "),
        Term("the server", "drafts, and tells how many tokens", " "),
        Term("grammar", f"writes what the form of this answer leaves no choice about{_FREE}", " "),
    )
}
"""Not in help: they draft only for requests that bring a prediction, files or a form."""

TERMS = (
    *(SPEED, PLAIN, GAIN, DRAFTED, ACCEPTED),
    *_DRAFTERS.values(),
    *(PAUSED, LOSSY, FULL, STEP, LIMIT),
)
"""The terms of the screen, for help."""


def drafter_term(drafter: str) -> Term:
    """The explanation of a drafter, by its name in figures; any other name is that of a model."""
    family = family_of(drafter)
    if family == "jacobi":
        return Term(family, _DRAFTERS["lookahead"].text)
    if family in _TRAINED:
        return Term(family, "guesses ahead, and was trained for this model")
    known = _DRAFTERS | _OF_ONE_REPLY
    return known.get(family) or Term(one_line(drafter), "a smaller model that guesses ahead")


@runtime_checkable
class Helpable(Protocol):
    """A widget that explains what it shows, on focus and in help."""

    @property
    def help_text(self) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    content: Content
    term: Term | None = None

    @classmethod
    def of(cls, text: str = "", term: Term | None = None, style: str = "") -> Self:
        return cls(Content.styled(text, style) if style else Content(text), term)

    def is_same(self, other: "Line") -> bool:
        return self.term == other.term and self.content.is_same(other.content)


BLANK = Line.of()


def beside(left: Iterable[Line], right: Iterable[Line], width: int) -> list[Line]:
    """Lines next to each other, those of the left in so many columns; explained by the right."""
    return [
        Line(one.content.pad_right(width - one.content.cell_length) + two.content, two.term)
        for one, two in zip(left, right, strict=True)
    ]


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

    def plain_dot(self, height: int) -> int:
        """The dot at the height of plain speed, counted from the bottom of so many rows."""
        return max(0, round(4 * height * self.plain / self.top) - 1) if self.plain else -1

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

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
_LINE = (0xC0, 0x24, 0x12, 0x09)
"""Dots: columns of a height, from the bottom, and rows."""
_BRAILLE = 0x2800
_BLOCKS = " ▄█"
"""The heights that the Linux console's fonts have."""


def is_console() -> bool:
    """Whether the terminal is the Linux console, whose fonts have few signs."""
    return os.environ.get("TERM") == "linux"


@lru_cache(maxsize=4)
def graph(minute: tuple[Second, ...], plain: float | None, height: int = 3) -> list[Line]:
    """Two seconds to a cell, the newest at the right; blocks on the Linux console.

    minute: oldest second first. plain: tokens a second of plain decoding, None if not known.
    """
    if not minute:
        return [Line.of(term=MINUTE)] * height
    scale = Scale.of(minute, plain)
    missing = 2 * _CELLS - len(minute)
    seconds = (*[Second(0.0)] * missing, *minute[-2 * _CELLS :])
    return [
        Line(Content.assemble(*_runs(_cells(row, height, scale, seconds)), (label, MUTED)), MINUTE)
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
    dot = scale.plain_dot(height) - 4 * (height - 1 - row)
    line = _LINE[dot] if 0 <= dot < 4 else 0
    for pair in zip(seconds[::2], seconds[1::2], strict=True):
        left, right = ((finite(second.rate) - floor) / per_row for second in pair)
        tallest = pair[0] if left > right else pair[1]
        if scale.is_gain(tallest.rate, floor + per_row) and tallest.drafter:
            yield _cell(left, right, line), kind_of(tallest.drafter).hue
        else:
            yield _cell(left, right, line), MUTED


def _cell(left: float, right: float, line: int) -> str:
    if is_console():
        block = _BLOCKS[_level((left + right) / 2, 2)]
        return "─" if line and block == " " else block
    dots = _LEFT[_level(left, 4)] | _RIGHT[_level(right, 4)] | line
    return chr(_BRAILLE + dots) if dots else " "


def _level(part: float, levels: int) -> int:
    return round(levels * min(max(part, 0.0), 1.0))


def _labels(scale: Scale, height: int) -> list[str]:
    """The top of the scale, 0 in the last row, and plain speed where its line is."""
    labels = ["" for _ in range(height)]
    labels[-1] = f"{0:>4}"
    labels[0] = _short(scale.top)
    if scale.plain is not None:
        labels[height - 1 - scale.plain_dot(height) // 4] = f"{_short(scale.plain)} plain"
    return [f"{label:<{_LABEL_WIDTH}}" for label in labels]


def _short(rate: float) -> str:
    if rate >= 9999.5:
        return f"{rate / 1000:>3.0f}k" if rate < 999_500 else " >1M"
    return f"{rate:>4.0f}" if rate >= 9.95 else f"{rate:>4.1f}"
