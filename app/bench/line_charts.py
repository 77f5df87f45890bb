"""Shares by a whole number, and the cost of a pass by its number of tokens."""

import math
from collections.abc import Iterator, Mapping, Sequence

from app.bench.charts import (
    WIDTH,
    Chart,
    Circle,
    Curve,
    Line,
    Scale,
    Shape,
    Text,
    points,
    shortened,
    spread_apart,
    text_width,
    ticks,
)

_HEIGHT = 300.0
_TOP = 22.0
_BOTTOM = _HEIGHT - 44.0
_LEFT = 40.0
_NAME_SIZE = 12.8
"""As wide as bold letters of the size that names are written in."""

_LONGEST_NAME = 150.0
_LARGEST = 18.0
"""Radius of a circle that stands for all steps."""


def share_chart(
    title: str,
    description: str,
    shares: Mapping[str, Mapping[int, float]],
    styles: Mapping[str, str],
    axis: str,
    tip: str,
) -> Chart:
    """A line for each method: its share at each whole number.

    axis: what is numbered. tip: what a point says, with {number} and {share}.
    """
    gutter = min(max(text_width(name, _NAME_SIZE) for name in shares), _LONGEST_NAME) + 4.0
    numbers = {number for line in shares.values() for number in line}
    first, last = min(numbers), max(numbers)
    across = Scale(first - 0.5, last + 0.5, _LEFT, WIDTH - gutter - 14.0)
    up = Scale(0.0, 1.0, _BOTTOM, _TOP)
    shapes: list[Shape] = [*_frame(across, _whole_numbers(first, last), axis)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        shapes += _level(across, up.at(share), f"{100 * share:.0f} %")
    for method, line in shares.items():
        shapes += _share_line(across, up, line, styles[method], f"{method}, {tip}")
    shapes += _line_names(across, up, shares, styles, gutter)
    return Chart(title, description, _HEIGHT, tuple(shapes))


def _frame(across: Scale, numbers: Sequence[int], words: str) -> Iterator[Shape]:
    for number in numbers:
        yield Text(across.at(number), _BOTTOM + 16.0, str(number), "tick", "middle")
    yield Text((across.start + across.end) / 2, _HEIGHT - 8.0, words, "name", "middle")


def _level(across: Scale, y: float, words: str) -> Iterator[Shape]:
    yield Line(across.start, y, across.end, y, "grid")
    yield Text(across.start - 6.0, y + 4.0, words, "tick", "end")


def _whole_numbers(low: int, high: int) -> list[int]:
    """From low on, so many that they can be told apart."""
    step = max(math.ceil((high - low + 1) / 12), 1)
    return list(range(low, high + 1, step))


def _share_line(
    across: Scale, up: Scale, line: Mapping[int, float], style: str, tip: str
) -> Iterator[Shape]:
    places = {number: (across.at(number), up.at(share)) for number, share in line.items()}
    yield Curve(points(list(places.values())), f"line {style}")
    for number, (x, y) in places.items():
        told = tip.format(number=number, share=f"{100 * line[number]:.0f} %")
        yield Circle(x, y, 3.0, style, told)


def _line_names(
    across: Scale,
    up: Scale,
    shares: Mapping[str, Mapping[int, float]],
    styles: Mapping[str, str],
    gutter: float,
) -> Iterator[Shape]:
    """The name of each line beside the plot, with a thin line to where it ends."""
    ends = {method: up.at(line[max(line)]) for method, line in shares.items()}
    placed = spread_apart(list(ends.values()), 15.0, _TOP, _BOTTOM)
    x = across.end + 12.0
    for (method, end), y in zip(ends.items(), placed, strict=True):
        from_x = across.at(max(shares[method]))
        yield Line(from_x + 4.0, end, x - 2.0, round(y, 2), f"leader {styles[method]}")
        name = shortened(method, gutter, _NAME_SIZE)
        yield Text(x, round(y + 4.0, 2), name, f"name {styles[method]}")


def cost_chart(
    title: str, description: str, costs: Mapping[int, float], steps: Sequence[int]
) -> Chart:
    """The cost of a pass over n tokens in units of one; circles for the steps taken at each n."""
    tokens = [1 + drafted for drafted, count in enumerate(steps) if count]
    longest = max([*costs, *tokens])
    across = Scale(0.0, longest + 0.5, _LEFT, WIDTH - 12.0)
    up = Scale(0.0, max(*costs.values(), 1.5) * 1.15, _BOTTOM, _TOP)
    shapes: list[Shape] = [
        *_frame(across, _whole_numbers(1, longest), "tokens in one pass of the model")
    ]
    for tick in ticks(up.high, 5):
        shapes += _level(across, up.at(tick), f"{tick:g}")
    shapes.append(Text(0.0, _TOP - 10.0, "cost, in passes over one token", "name"))
    shapes += _no_gain(across, up)
    shapes += _cost_line(across, up, costs)
    shapes += _chosen(across, up, costs, steps)
    return Chart(title, description, _HEIGHT, tuple(shapes))


def _no_gain(across: Scale, up: Scale) -> Iterator[Shape]:
    """The line on which a pass over n tokens costs n passes."""
    end = min(across.high, up.high)
    x, y = across.at(end), up.at(end)
    yield Line(across.at(0.0), up.at(0.0), x, y, "reference dashed")
    left = x > WIDTH / 2
    words = "n tokens cost n passes"
    yield Text(x - 12.0 if left else x + 8.0, y + 12.0, words, "name", "end" if left else "start")


def _cost_line(across: Scale, up: Scale, costs: Mapping[int, float]) -> Iterator[Shape]:
    places = {n: (across.at(n), up.at(cost)) for n, cost in sorted(costs.items())}
    yield Curve(points(list(places.values())), "line cost")
    for n, (x, y) in places.items():
        yield Circle(x, y, 2.5, "cost", f"{n} tokens: {costs[n]:.2f}")


def _chosen(
    across: Scale, up: Scale, costs: Mapping[int, float], steps: Sequence[int]
) -> Iterator[Shape]:
    """A circle for each length, its area the share of steps; the share itself where it is large."""
    total = sum(steps)
    written: list[float] = []
    for drafted in sorted(range(len(steps)), key=lambda drafted: -steps[drafted]):
        if not steps[drafted]:
            continue
        share = steps[drafted] / total
        x, y = across.at(1 + drafted), up.at(cost_at(costs, 1 + drafted))
        radius = round(max(_LARGEST * math.sqrt(share), 2.0), 2)
        words = f"{100 * share:.0f} %"
        yield Circle(x, y, radius, "chosen c1", f"{drafted} drafted: {words} of the steps")
        if share >= 0.03 and all(abs(x - other) > 30.0 for other in written):
            written.append(x)
            yield Text(x, round(y - radius - 5.0, 2), words, "figure", "middle")


def cost_at(costs: Mapping[int, float], n: int) -> float:
    """On the straight line through the measured neighbours of n, or the last two."""
    known = sorted(costs)
    if n in costs or len(known) < 2:
        return costs[min(known, key=lambda point: abs(point - n))]
    above = next((place for place, point in enumerate(known) if point > n), len(known) - 1)
    left, right = known[max(above, 1) - 1], known[max(above, 1)]
    slope = (costs[right] - costs[left]) / (right - left)
    return costs[left] + slope * (n - left)
