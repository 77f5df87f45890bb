"""The graph of the last minute and its scale."""

import pytest

from app.tui.panel.graph import Scale, graph
from app.tui.store import Second


def drawn(rates: list[float], plain: float | None = 10.0, height: int = 3) -> list[str]:
    """The cells that are not blank, and the labels."""
    minute = tuple(Second(rate, "lookup") for rate in rates)
    return [line.content.plain.strip() for line in graph(minute, plain, height)]


def test_the_scale_begins_at_0_and_plain_speed_ends_a_row() -> None:
    assert drawn([12.5, 12.5, 10.0, 10.0]) == ["⣤   15", "░░  10 plain", "░░   0"]


@pytest.mark.parametrize(("peak", "top"), [(0.0, 15.0), (15.0, 15.0), (16.0, 30.0), (70.0, 120.0)])
def test_the_scale_doubles_until_the_peak_fits(peak: float, top: float) -> None:
    assert Scale.of((Second(peak),), 10.0).top == top


def test_without_a_plain_rate_all_is_grey() -> None:
    lines = graph((Second(7.0, "lookup"), Second(8.0, "ngram")), None)
    assert {str(span.style) for line in lines for span in line.content.spans} == {"$text-muted"}
    assert drawn([7.0, 8.0], None)[0] == "⢠  10"


def test_what_is_above_plain_has_the_hue_of_its_drafter() -> None:
    top, middle, _ = graph((Second(15.0, "ngram"), Second(15.0, "ngram")), 10.0)
    assert "ngram" in str(top.content.spans[0].style)
    assert str(middle.content.spans[0].style) == "$text-muted"


def test_rates_that_are_no_number_are_blank() -> None:
    assert drawn([float("nan"), float("inf")])[0] == "15"


def test_large_rates_and_one_row() -> None:
    assert drawn([25_000.0, 25_000.0], None, 1) == ["⣤ 50k"]
    assert drawn([], 10.0) == ["", "", ""]


def test_the_linux_console_has_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "linux")
    graph.cache_clear()
    assert drawn([12.5, 12.5])[0] == "▄  15"
    graph.cache_clear()
