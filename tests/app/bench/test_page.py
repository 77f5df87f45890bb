"""The page: whole, harmless, and with every figure."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from app.bench.page import page
from app.bench.results import Bench
from tests.fixtures.benches import METHODS, synthetic_bench

VOID = {"meta", "link", "br", "hr", "img", "input"}
LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}
HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}"


class Reader(HTMLParser):
    """Checks that tags nest, and keeps what was read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self._keep(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._keep(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} ends at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def _keep(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in LOADING:
                self.loads.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)
            if name == "id":
                self.ids.append(value or "")

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def hostile_bench() -> Bench:
    bench = synthetic_bench(("off", HOSTILE))
    return replace(bench, model=HOSTILE, device=HOSTILE, bandwidth_source=HOSTILE, notes=(HOSTILE,))


def bare_bench() -> Bench:
    return replace(
        synthetic_bench(),
        runs=(),
        cost_seconds={},
        bandwidth_bytes_per_second=None,
        bandwidth_source=None,
        notes=(),
    )


def published_bench() -> Bench:
    """One round, in which methods read their prompts by themselves."""
    bench = synthetic_bench()
    runs = (replace(run, ttft_seconds=0.5) for run in bench.runs if run.round == 0)
    return replace(bench, runs=tuple(runs), rounds=1)


@pytest.mark.parametrize(
    "bench",
    [
        synthetic_bench(),
        synthetic_bench(("off", "lookup")),
        synthetic_bench(("off",)),
        synthetic_bench((*METHODS, "smollm2-135m-instruct-q4_0-requantized-x", "smollm2-360m")),
        replace(synthetic_bench(), temperatures=(0.0,), rounds=1),
        hostile_bench(),
        bare_bench(),
        published_bench(),
    ],
    ids=["usual", "two", "plain", "seven", "one round", "hostile", "bare", "published"],
)
def test_the_page_is_whole_and_loads_nothing(bench: Bench) -> None:
    html = page(bench)
    assert html.startswith("<!DOCTYPE html>")
    reader = Reader(html)
    assert all(load.startswith(("data:", "#")) for load in reader.loads)
    assert reader.handlers == []
    assert "script" not in reader.tags
    assert not re.search(r"https?://|@import|url\(", html)
    assert len(set(reader.ids)) == len(reader.ids)
    assert not re.search(r'="-?(nan|inf)', html)


def test_a_hostile_name_stays_text() -> None:
    reader = Reader(page(hostile_bench()))
    assert "img" not in reader.tags
    assert reader.text.count(HOSTILE) >= 3
    assert "49" not in reader.words


def test_every_speedup_of_the_summary_is_in_the_page() -> None:
    bench = synthetic_bench()
    text = Reader(page(bench)).text
    for row in bench.as_json()["summary"]:
        assert f"{row['mean_speedup']:.2f}" in text
        for speedup in row["speedup"].values():
            told = f"{speedup['median']:.2f} {speedup['least']:.2f} to {speedup['most']:.2f}"
            assert told in text


def test_the_headline_is_auto_at_both_temperatures() -> None:
    html = page(synthetic_bench())
    cards = re.findall(r'class="big">([^<]*)<', html)
    assert cards == ["1.42", "1.34"]
    text = Reader(html).text
    assert "auto at temperature 0, mean of 6 kinds of prompts" in text
    assert "Measured against plain decoding (off), in the same run." in text


def test_every_chart_is_described_and_has_its_numbers() -> None:
    html = page(synthetic_bench())
    assert len(re.findall(r'role="img" aria-label="[^"]{30,} Its numbers follow."', html)) == 5
    tags = Reader(html).tags
    assert (tags.count("svg"), tags.count("table"), tags.count("figcaption")) == (5, 5, 5)


def test_missing_figures_are_said_to_be() -> None:
    text = Reader(page(bare_bench())).text
    assert "memory bandwidth was not measured" in text
    assert text.count("Not measured.") == 2
    assert "Notes" not in text


def test_identical_replies_are_counted_by_method() -> None:
    bench = synthetic_bench(("off", "auto", "llama-cpp-python lookup"))
    runs = tuple(
        replace(run, same_tokens=run.temperature == 0 and run.method == "auto")
        for run in bench.runs
    )
    text = Reader(page(replace(bench, runs=runs))).text
    counts = "auto 18 of 18; llama-cpp-python lookup 0 of 18."
    assert f"Answers identical to plain decoding at temperature 0: {counts}" in text
    none = tuple(replace(run, same_tokens=None) for run in bench.runs)
    assert "identical" not in page(replace(bench, runs=none))


def test_rounding_is_blamed_only_for_replies_of_ours() -> None:
    bench = synthetic_bench(("off", "auto"))
    runs = tuple(replace(run, same_tokens=False) for run in bench.runs)
    text = Reader(page(replace(bench, runs=runs))).text
    assert "auto 0 of 18; a pass over several tokens rounds differently" in text


def test_one_round_is_reported_at_the_top_and_has_no_whiskers() -> None:
    bench = synthetic_bench()
    runs = tuple(run for run in bench.runs if run.round == 0)
    text = Reader(page(replace(bench, runs=runs, rounds=1))).text
    assert text.index("One round: how much") < text.index("Temperature 0")
    assert "whisker" not in text
    assert "whiskers span" in Reader(page(bench)).text


def test_a_missing_kind_leaves_a_dash() -> None:
    bench = synthetic_bench(("off", "auto"))
    runs = tuple(run for run in bench.runs if (run.method, run.kind) != ("auto", "maths"))
    html = page(replace(bench, runs=runs))
    assert re.findall(r'class="big">([^<]*)<', html) == ["-", "-"]
    assert "-" in texts(html)


def chart(html: str, heading: str) -> str:
    """The SVG below a heading."""
    return html.partition(f"<h3>{heading}</h3>")[2].partition("</svg>")[0]


def texts(svg: str) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", svg)


def widths(svg: str) -> list[float]:
    return [float(width) for width in re.findall(r'<rect [^>]*width="(\S+)"', svg)]


def test_bars_are_as_long_as_their_figures_and_labelled() -> None:
    bench = synthetic_bench(("off", "lookup", "auto"))
    svg = chart(page(bench), "Temperature 0")
    speedups = [
        bench.speedup(method, kind, 0.0) for kind in bench.kinds for method in ("lookup", "auto")
    ]
    means = [bench.mean_speedup(method, 0.0) for method in ("lookup", "auto")]
    values = [*(one.median for one in speedups if one), *(mean or 0.0 for mean in means)]
    assert widths(svg) == pytest.approx(
        [value * widths(svg)[0] / values[0] for value in values], abs=0.2
    )
    assert {*bench.kinds, "lookup", "auto", *(f"{value:.2f}" for value in values)} <= set(
        texts(svg)
    )
    assert svg.count('class="reference"') == len(bench.kinds) + 1
    assert svg.count('class="range"') == len(speedups)


def test_a_method_looks_alike_in_every_chart_and_no_other_does() -> None:
    methods = ("off", *(f"method {number}" for number in range(8)))
    html = page(synthetic_bench(methods))
    bars, line = chart(html, "Temperature 0"), chart(html, "Conditional acceptance by position")
    colours = re.findall(r"fill: var\((--c\d)\)", bars)[:8]
    lines = re.findall(r'stroke: var\((--c\d)\)">\s*<polyline stroke-dasharray="([^"]+)"', line)
    assert [colour for colour, _ in lines] == colours
    assert len(set(lines)) == len(methods) - 1


def test_every_position_has_a_point() -> None:
    bench = synthetic_bench(("off", "auto"))
    html = page(bench)
    (points,) = re.findall(r'points="([^"]*)"', chart(html, "Conditional acceptance by position"))
    assert len(points.split()) == len(bench.conditional_acceptance("auto"))


@pytest.mark.parametrize("name", ["$x$", "<b>&amp;", "\N{CJK UNIFIED IDEOGRAPH-65E5}\n", "\udc80"])
def test_any_name_is_drawn_as_text(name: str) -> None:
    html = page(synthetic_bench(("off", name)))
    assert "<b>" not in html
    assert len(texts(chart(html, "Temperature 0"))) == 3 * 7 + 1


def test_long_names_keep_both_ends() -> None:
    name = "smollm2-135m-instruct-q4_0-requantized-x"
    short = next(text for text in texts(page(synthetic_bench(("off", name)))) if "…" in text)
    assert name.startswith(short.partition("…")[0])
    assert name.endswith(short.partition("…")[2])
