"""Grouped horizontal bars with whiskers, and a line they are compared with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.bench.charts import (
    WIDTH,
    Chart,
    Line,
    Rectangle,
    Scale,
    Shape,
    Text,
    kept_within,
    shortened,
    text_width,
    ticks,
)
from app.bench.wording import MISSING

_NAME_SIZE = 11.5
_LONGEST_NAME = 160.0
_GAP = 8.0
_HEADING = 27.0
_ROW = 19.0
_BAR = 12.0
_CAP = 3.5
_FOOT = 24.0
_REFERENCE_LINE = 15.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A method's figure as drawn and as written; the whisker goes from least to most."""

    method: str
    value: float | None
    text: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Bars under one heading."""

    heading: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """What the bars are compared with; without a value only the words are shown."""

    value: float | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where the columns of names, bars and figures are, and where the rows begin and end."""

    scale: Scale
    top: float
    bottom: float
    names: float


def bar_chart(
    title: str,
    description: str,
    groups: Sequence[Group],
    styles: Mapping[str, str],
    reference: Reference,
    most: float = 0.0,
) -> Chart:
    """All groups below each other, on one axis from 0 to the largest figure, or to most."""
    plan = _plan(groups, reference, most)
    shapes = [*_grid(plan), *_rows(plan, groups, styles), *_reference(plan, reference)]
    return Chart(title, description, plan.bottom + _FOOT, tuple(shapes))


def _plan(groups: Sequence[Group], reference: Reference, most: float) -> _Plan:
    bars = [bar for group in groups for bar in group.bars]
    figures = max((text_width(bar.text, _NAME_SIZE) for bar in bars), default=0.0)
    names = max((text_width(bar.method, _NAME_SIZE) for bar in bars), default=0.0)
    names = min(names, _LONGEST_NAME)
    values = [value for bar in bars for value in (bar.value, bar.most) if value is not None]
    most = max([*values, reference.value or 0.0, most]) * 1.04 or 1.0
    top = _REFERENCE_LINE * len(reference.words) + 6.0
    bottom = top + sum(_HEADING + _ROW * len(group.bars) for group in groups) + 4.0
    scale = Scale(0.0, most, names + _GAP, WIDTH - figures - _GAP)
    return _Plan(scale, top, bottom, names)


def _grid(plan: _Plan) -> Iterator[Shape]:
    for tick in ticks(plan.scale.high, 5):
        x = plan.scale.at(tick)
        yield Line(x, plan.top, x, plan.bottom, "grid")
        yield Text(x, plan.bottom + 15.0, f"{tick:g}", "tick", "middle")


def _rows(plan: _Plan, groups: Sequence[Group], styles: Mapping[str, str]) -> Iterator[Shape]:
    y = plan.top
    for group in groups:
        yield Text(0.0, y + 20.0, group.heading, "heading")
        y += _HEADING
        for bar in group.bars:
            yield from _row(plan, bar, f"{group.heading}, {bar.method}", styles[bar.method], y)
            y += _ROW


def _row(plan: _Plan, bar: Bar, where: str, style: str, y: float) -> Iterator[Shape]:
    middle = y + _ROW / 2
    baseline = middle + 4.0
    name = shortened(bar.method, plan.names, _NAME_SIZE)
    yield Text(plan.names, baseline, name, "name", "end")
    yield Text(WIDTH, baseline, bar.text, "figure" if bar.text != MISSING else "name", "end")
    if bar.value is None:
        return
    start = plan.scale.start
    width = round(plan.scale.at(bar.value) - start, 2)
    tip = f"{where}: {bar.text}"
    if bar.least is not None and bar.most is not None:
        tip += f" (rounds from {bar.least:.2f} to {bar.most:.2f})"
    yield Rectangle(start, middle - _BAR / 2, width, _BAR, style, tip)
    yield from _whisker(plan, bar, middle)


def _whisker(plan: _Plan, bar: Bar, y: float) -> Iterator[Shape]:
    if bar.least is None or bar.most is None or bar.least == bar.most:
        return
    left, right = plan.scale.at(bar.least), plan.scale.at(bar.most)
    # The halo sets the whisker off from a bar of any colour.
    for style in ("halo", "whisker"):
        yield Line(left, y, right, y, style)
        for x in (left, right):
            yield Line(x, y - _CAP, x, y + _CAP, style)


def _reference(plan: _Plan, reference: Reference) -> Iterator[Shape]:
    unknown = reference.value is None
    x = plan.scale.at(plan.scale.high / 2 if reference.value is None else reference.value)
    if not unknown:
        for style in ("halo", "reference"):
            yield Line(x, plan.top - 2.0, x, plan.bottom, style)
    for number, words in enumerate(reference.words, start=1):
        fitting = shortened(words, WIDTH, _NAME_SIZE)
        middle = kept_within(x, text_width(fitting, _NAME_SIZE), 0.0, WIDTH)
        y = number * _REFERENCE_LINE - 3.0
        yield Text(middle, y, fitting, "name" if unknown or number > 1 else "referenced", "middle")
