"""The results of a bench as a self-contained HTML page: charts, captions, tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from app.bench import wording
from app.bench.results import PLAIN, Bench, Speedup
from app.bench.wording import (
    FIGURES,
    MISSING,
    comparable_rate,
    decimals,
    drafting_methods,
    figure_rows,
    main_method,
    percent,
    sentence,
    wall_sentence,
    with_error,
)
from app.printable import one_line
from app.wording import counted

_LONGEST_NAME = 24
_COLOURS = 6
_DASHES = ("none", "6 3", "2 2")
_TICKS = 8
"""Most numbers along an axis."""

_MEASURED, _UNBATCHED = "measured cost", "cost without batching: n passes"

Row = tuple[str, ...]
"""Numbers as text; the first cell names the row."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of one method and its label; the whisker spans least to most."""

    method: str
    value: float | None
    label: str
    least: float = 0.0
    most: float = 0.0


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars below one heading for each group, with a line at the reference."""

    groups: Mapping[str, Sequence[Bar]]
    axis: str
    reference: float | None
    end: float


@dataclass(frozen=True, slots=True)
class Lines:
    """A line for each method. Ticks are numbers with their labels."""

    series: Mapping[str, Mapping[int, float]]
    axis: str
    end: tuple[float, float]
    y_ticks: Sequence[tuple[float, str]]

    @property
    def x_ticks(self) -> range:
        last = int(self.end[0])
        return range(0, last + 1, max(-(-last // _TICKS), 1))


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart with its caption and table; chart: None if there is nothing to draw."""

    heading: str
    caption: str = "Not measured."
    header: Row = ()
    rows: Sequence[Row] = ()
    chart: Bars | Lines | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and dashes of a method, the same in every chart, and its name without its middle."""

    name: str
    colour: str = "--c0"
    dashes: str = "none"


def page(bench: Bench, compared: Sequence[str] = ()) -> str:
    """compared: what changed since another bench, in lines."""
    return _template().render(
        bench=bench,
        method=main_method(bench),
        prompts=len({(run.kind, run.prompt) for run in bench.runs}),
        words=wording,
        counted=counted,
        speedups=[_speedups(bench, temperature) for temperature in bench.temperatures],
        compared=compared,
        kinds=_kinds(bench),
        gains=[_acceptance(bench), _costs(bench)],
        rates=_rates(bench),
        looks=_looks(bench.methods),
    )


@cache
def _template() -> Template:
    return Environment(
        loader=PackageLoader("app", "bench"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("page.html.j2")


def _looks(methods: Sequence[str]) -> dict[str, Look]:
    looks = {
        PLAIN: Look(PLAIN),
        _MEASURED: Look(_MEASURED, "--ink"),
        _UNBATCHED: Look(_UNBATCHED, "--quiet", "6 3"),
    }
    for number, method in enumerate(method for method in methods if method != PLAIN):
        round_, place = divmod(number, _COLOURS)
        dashes = _DASHES[round_ % len(_DASHES)]
        looks[method] = Look(_shortened(method), f"--c{place + 1}", dashes)
    return looks


def _shortened(name: str) -> str:
    name, half = one_line(name), _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[1 - half :]}"


def _speedups(bench: Bench, temperature: float) -> Figure:
    """Speedup by kind of prompt and method, with whiskers if there are several rounds."""

    def speedup(method: str, kind: str) -> Speedup | None:
        return bench.speedup(method, kind, temperature)

    means = {method: bench.mean_speedup(method, temperature) for method in bench.methods}
    methods = drafting_methods(bench)
    groups = {
        kind: [_bar(method, speedup(method, kind)) for method in methods] for kind in bench.kinds
    }
    groups["mean of all kinds"] = [
        Bar(method, means[method], decimals(means[method], 2)) for method in methods
    ]
    every = (bench.speedup(*place) for place in product(methods, bench.kinds, bench.temperatures))
    fastest = max((one.most for one in every if one is not None), default=1.0)
    return Figure(
        f"Temperature {temperature:g}",
        "Bars are medians over the rounds; whiskers span the slowest to the fastest round."
        if bench.rounds > 1
        else "Bars show a single round" + (", whiskers the error." if bench.tells_latency else "."),
        ("method", *bench.kinds, "mean"),
        [
            (
                method,
                *(_speedup_cell(speedup(method, kind), bench.rounds) for kind in bench.kinds),
                decimals(means[method], 2),
            )
            for method in bench.methods
        ],
        Bars(groups, "speedup; line: plain decoding", 1.0, fastest) if methods else None,
    )


def _bar(method: str, speedup: Speedup | None) -> Bar:
    if speedup is None:
        return Bar(method, None, MISSING)
    error = (speedup.error or 0.0) if speedup.least == speedup.most else 0.0
    least, most = speedup.least - error, speedup.most + error
    return Bar(method, speedup.median, f"{speedup.median:.2f}", max(least, 0.0), most)


def _speedup_cell(speedup: Speedup | None, rounds: int) -> str:
    if speedup is None:
        return MISSING
    if rounds > 1:
        return f"{speedup.median:.2f}\n{speedup.least:.2f} to {speedup.most:.2f}"
    return with_error(speedup.median, speedup.error)


def _kinds(bench: Bench) -> list[Figure]:
    """What published suites tell, by kind of questions and for all."""
    header = ("method", *map(str.strip, FIGURES[1:]))
    return [
        Figure(title, "", header, [tuple(row) for row in rows])
        for title, rows in figure_rows(bench).items()
    ]


def _acceptance(bench: Bench) -> Figure:
    by_position = {
        method: bench.conditional_acceptance(method) for method in drafting_methods(bench)
    }
    shares = {
        method: dict(enumerate(line, start=1)) for method, line in by_position.items() if line
    }
    heading = "Conditional acceptance by position"
    longest = max(map(len, by_position.values()), default=0)
    header = ("method", "all", *map(str, range(1, longest + 1)))
    rows = [
        (method, *map(percent, [bench.acceptance(method), *line]), *[""] * (longest - len(line)))
        for method, line in by_position.items()
    ]
    if not shares:
        return Figure(heading, header=header, rows=rows)
    caption = "Share accepted of the drafts that were accepted up to the position before, all "
    caption += (
        "temperatures together. Late positions are drafted only where a draft looks promising."
    )
    last = max(max(line) for line in shares.values())
    ticks = [(quarter / 4, f"{25 * quarter} %") for quarter in range(5)]
    lines = Lines(shares, "position in the draft", (max(last, 1), 1.0), ticks)
    return Figure(heading, caption, header, rows, lines)


def _costs(bench: Bench) -> Figure:
    heading, seconds = "Cost of a pass", bench.cost_seconds
    if len(seconds) < 2 or not seconds.get(1):
        return Figure(heading)
    costs = {n: taken / seconds[1] for n, taken in sorted(seconds.items())}
    most = 1.2 * max(costs.values())
    return Figure(
        heading,
        "The flatter the curve, the less a longer draft costs to verify.",
        ("tokens in a pass", "milliseconds", "cost in passes over one"),
        [(str(n), decimals(1000 * seconds[n], 2), decimals(costs[n], 2)) for n in costs],
        Lines(
            {_MEASURED: costs, _UNBATCHED: {0: 0.0, int(most): int(most)}},
            "tokens in one pass of the model; cost, in passes over one token",
            (max(costs) + 0.5, most),
            [(n, str(n)) for n in range(0, int(most) + 1, max(int(most) // _TICKS, 1))],
        ),
    )


def _rates(bench: Bench) -> Figure:
    rates = {
        method: [comparable_rate(bench, method, temperature) for temperature in bench.temperatures]
        for method in bench.methods
    }
    headings = [f"temperature {temperature:g}" for temperature in bench.temperatures]
    groups = {
        heading: [
            Bar(method, values[place], decimals(values[place], 1))
            for method, values in rates.items()
        ]
        for place, heading in enumerate(headings)
    }
    axis = "tokens per second"
    if bench.wall is not None:
        axis += f"; line: wall, {bench.wall:.1f}"
    fastest = max((rate for values in rates.values() for rate in values if rate), default=1.0)
    return Figure(
        "Tokens per second",
        sentence(wall_sentence(bench)),
        ("method", *headings),
        [(method, *(decimals(rate, 1) for rate in values)) for method, values in rates.items()],
        Bars(groups, axis, bench.wall, max(fastest, bench.wall or 0.0)),
    )
