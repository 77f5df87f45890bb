"""The sums that place what charts are drawn of."""

from itertools import pairwise

import pytest

from app.bench.bar_chart import Bar, Group, Reference, bar_chart
from app.bench.charts import (
    WIDTH,
    Circle,
    Line,
    Rectangle,
    Scale,
    Text,
    colours,
    shortened,
    spread_apart,
    text_width,
    ticks,
)
from app.bench.line_charts import cost_at, cost_chart, share_chart


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (2.7, [0, 0.5, 1, 1.5, 2, 2.5]),
        (0.06, [0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06]),
        (170, [0, 50, 100, 150]),
        (0, [0]),
    ],
)
def test_ticks_are_round(most: float, expected: list[float]) -> None:
    assert ticks(most) == pytest.approx(expected)


def test_names_keep_both_ends() -> None:
    name = "smollm2-135m-instruct-q4_0-requantized-x"
    short = shortened(name, 120.0, 11.5)
    assert text_width(short, 11.5) <= 120.0
    assert short.startswith("smollm2")
    assert short.endswith("zed-x")
    assert shortened("auto", text_width("auto", 11.5), 11.5) == "auto"


def test_labels_keep_apart_and_within() -> None:
    placed = spread_apart([98.0, 99.0, 10.0, 99.0], 15.0, 0.0, 100.0)
    assert placed[2] == 10.0
    assert sorted(placed) == placed[2:3] + sorted(placed[:2] + placed[3:])
    assert max(placed) <= 100.0
    steps = sorted(placed)
    assert all(b - a >= 15.0 - 1e-9 for a, b in pairwise(steps))


def test_auto_and_plain_always_look_the_same() -> None:
    assert colours(("off", "lookup", "auto")) == {"off": "c0", "auto": "c1", "lookup": "c2"}
    assert colours(("off", "auto"))["auto"] == "c1"
    seven = colours(("off", "a", "b", "c", "d", "e", "auto"))
    assert len(set(seven.values())) == 7


def test_a_fixed_length_has_the_colour_of_its_drafter() -> None:
    methods = ("off", "lookup", "lookup, always 3", "lookup, always 7", "self, always 3", "auto")
    styles = list(colours(methods).values())
    assert styles == ["c0", "c2", "c2 pale1", "c2 pale2", "c3 pale1", "c1"]


def test_bars_are_as_long_as_their_figures() -> None:
    bars = (Bar("auto", 2.0, "2.00", 1.5, 2.5), Bar("self", 0.5, "0.50"), Bar("x", None, "-"))
    styles = colours(("off", "auto", "self", "x"))
    chart = bar_chart("t", "d", [Group("chat", bars)], styles, Reference(1.0, ("plain",)))
    long, short = (shape for shape in chart.shapes if isinstance(shape, Rectangle))
    assert long.width == pytest.approx(4 * short.width, abs=0.05)
    plain = next(
        shape for shape in chart.shapes if isinstance(shape, Line) and "ref" in shape.style
    )
    assert plain.x1 == pytest.approx(long.x + long.width / 2, abs=0.05)
    whisker = next(
        shape for shape in chart.shapes if isinstance(shape, Line) and "whi" in shape.style
    )
    assert whisker.x2 - whisker.x1 == pytest.approx(long.width / 2, abs=0.05)
    assert all(shape.x + shape.width <= WIDTH for shape in (long, short))


def test_a_wall_beyond_all_bars_is_within_the_chart() -> None:
    chart = bar_chart(
        "t",
        "d",
        [Group("g", (Bar("off", 5.0, "5.0"),))],
        {"off": "c0"},
        Reference(900.0, ("wall",)),
    )
    wall = next(shape for shape in chart.shapes if isinstance(shape, Line) and "ref" in shape.style)
    assert wall.x1 < WIDTH
    words = next(
        shape for shape in chart.shapes if isinstance(shape, Text) and shape.text == "wall"
    )
    assert words.x + text_width("wall", 11.5) / 2 <= WIDTH


def test_a_line_has_a_point_for_each_number() -> None:
    styles = {"auto": "c1", "self": "c2"}
    shares = {"auto": {1: 1.0, 2: 0.5, 3: 0.0}, "self": {0: 0.4}}
    chart = share_chart("t", "d", shares, styles, "position", "place {number}: {share}")
    dots = [shape for shape in chart.shapes if isinstance(shape, Circle) and shape.style == "c1"]
    assert len(dots) == 3
    assert dots[1].y == pytest.approx((dots[0].y + dots[2].y) / 2, abs=0.05)
    assert dots[1].tip == "auto, place 2: 50 %"
    (first,) = (
        shape for shape in chart.shapes if isinstance(shape, Circle) and "c2" in shape.style
    )
    assert dots[0].x - first.x == pytest.approx(dots[1].x - dots[0].x, abs=0.05)
    ticks = [shape for shape in chart.shapes if isinstance(shape, Text) and shape.text.isdigit()]
    assert [(tick.text, tick.x) for tick in ticks] == [
        (str(number), dot.x) for number, dot in enumerate([first, *dots])
    ]


def test_circles_stand_on_the_curve_with_area_by_steps() -> None:
    chart = cost_chart("t", "d", {1: 1.0, 3: 2.0}, [16, 4, 0, 4])
    circles = [s for s in chart.shapes if isinstance(s, Circle) and "chosen" in s.style]
    assert len(circles) == 3
    by_place = sorted(circles, key=lambda circle: circle.x)
    assert by_place[0].radius == pytest.approx(2 * by_place[1].radius, abs=0.05)
    dots = [s for s in chart.shapes if isinstance(s, Circle) and s.style == "cost"]
    assert (by_place[0].x, by_place[0].y) == (dots[0].x, dots[0].y)
    assert by_place[1].y == pytest.approx((dots[0].y + dots[1].y) / 2, abs=0.05)


@pytest.mark.parametrize(
    ("n", "cost"), [(1, 1.0), (2, 1.5), (3, 2.0), (6, 3.5), (8, 4.5), (12, 6.5)]
)
def test_cost_between_and_beyond_what_was_measured(n: int, cost: float) -> None:
    assert cost_at({1: 1.0, 3: 2.0, 7: 4.0, 9: 5.0}, n) == pytest.approx(cost)


def test_a_scale_may_run_upside_down() -> None:
    assert Scale(0.0, 10.0, 200.0, 100.0).at(2.5) == 175.0
