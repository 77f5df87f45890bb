"""Charts as matplotlib draws them, read back from their SVG."""

import re

import pytest

from app.bench.plots import Bar, bar_chart, cost_chart, share_chart

METHODS = ("off", "lookup", "auto")


def texts(svg: str) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", svg)


def widths(svg: str, colour: str) -> list[float]:
    """Widths of the bars of a colour."""
    paths = re.findall(rf'<path d="([^"]*z)\s*" style="fill: var\({colour}\)"', svg)
    found: list[float] = []
    for path in paths:
        across = [float(x) for x in re.findall(r"[ML] (\S+)", path)]
        found.append(max(across) - min(across))
    return found


def test_bars_are_as_long_as_their_figures_and_labelled() -> None:
    bars = [Bar("lookup", 0.5, "0.50"), Bar("auto", 2.0, "2.00", 1.5, 2.5), Bar("off", None, "-")]
    svg = bar_chart({"chat": bars}, METHODS, "speedup", 1.0)
    assert {"chat", "lookup", "auto", "off", "0.50", "2.00", "-", "speedup"} <= set(texts(svg))
    (short,), (long,) = widths(svg, "--c1"), widths(svg, "--c2")
    assert long == pytest.approx(4 * short, abs=0.05)


def test_a_single_round_has_no_whiskers() -> None:
    rounds = bar_chart({"chat": [Bar("auto", 2.0, "2.00", 1.5, 2.5)]}, METHODS, "x", None)
    single = bar_chart({"chat": [Bar("auto", 2.0, "2.00", 2.0, 2.0)]}, METHODS, "x", None)
    assert "<use" in rounds
    assert "<use" not in single


def test_a_method_looks_alike_in_every_chart() -> None:
    bars = bar_chart({"chat": [Bar("auto", 2.0, "2.00")]}, METHODS, "x", None)
    lines = share_chart({"auto": {1: 1.0, 2: 0.5}}, METHODS, "position")
    for svg in (bars, lines):
        assert "var(--c2)" in svg
        assert "var(--c1)" not in svg


def test_a_line_has_a_point_for_each_number_and_a_name() -> None:
    svg = share_chart({"auto": {1: 1.0, 2: 0.5, 3: 0.0}}, METHODS, "position")
    assert {"auto", "position", "100 %", "0 %"} <= set(texts(svg))
    assert svg.count("<use") == 3 + 1  # the legend has one too


def test_every_chosen_length_has_a_circle() -> None:
    svg = cost_chart({1: 1.0, 3: 2.0}, [16, 4, 0, 4])
    assert len(re.findall(r"opacity: 0\.4", svg)) >= 3
    assert "opacity: 0.4" not in cost_chart({1: 1.0, 3: 2.0}, [])


@pytest.mark.parametrize("name", ["$x$", "<b>&amp;", "\N{CJK UNIFIED IDEOGRAPH-65E5}\n", "\udc80"])
def test_any_name_is_drawn_as_text(name: str) -> None:
    svg = bar_chart({"chat": [Bar(name, 1.0, "1.00")]}, ("off", name), "x", None)
    assert "<b>" not in svg
    assert len(texts(svg)) >= 4


def test_long_names_keep_both_ends() -> None:
    name = "smollm2-135m-instruct-q4_0-requantized-x"
    svg = bar_chart({"chat": [Bar(name, 1.0, "1.00")]}, ("off", name), "x", None)
    (short,) = (text for text in texts(svg) if "…" in text)
    assert name.startswith(short.partition("…")[0])
    assert name.endswith(short.partition("…")[2])
