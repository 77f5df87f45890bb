"""The charts of the page, each with its caption and the table of its numbers."""

from dataclasses import dataclass

from app.bench.bar_chart import Bar, Group, Reference, bar_chart
from app.bench.charts import Chart, colours
from app.bench.line_charts import cost_at, cost_chart, share_chart
from app.bench.results import AUTO, Bench, Speedup
from app.bench.wording import (
    MISSING,
    comparable_rate,
    decimals,
    drafting_methods,
    gigabytes,
    percent,
    wall_sentence,
)


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers as text; the first cell of a row names it."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart with its table; without a chart the caption tells why."""

    heading: str
    caption: str
    chart: Chart | None
    table: Table


def speedup_figure(bench: Bench, temperature: float) -> Figure:
    """Bars by kind and method, with whiskers over the rounds."""
    methods = drafting_methods(bench)
    groups = [
        Group(
            kind,
            tuple(
                _speedup_bar(method, bench.speedup(method, kind, temperature)) for method in methods
            ),
        )
        for kind in bench.kinds
    ]
    means = {method: bench.mean_speedup(method, temperature) for method in methods}
    bars = (Bar(method, value, decimals(value, 2)) for method, value in means.items())
    groups.append(Group("mean of all kinds", tuple(bars)))
    chart = bar_chart(
        f"Speedup against plain decoding at temperature {temperature:g}",
        "Bars by kind of prompt and method. Mean of all kinds: "
        + ", ".join(f"{method} {decimals(value, 2)}" for method, value in means.items()),
        groups,
        colours(bench.methods),
        Reference(1.0, ("plain decoding",)),
        _most(bench),
    )
    caption = "Bars are medians; whiskers go from the least to the most of the rounds."
    return Figure(
        f"Temperature {temperature:g}", caption, chart, _speedup_table(bench, temperature)
    )


def _most(bench: Bench) -> float:
    """The end of the axis that the charts of all temperatures share."""
    found = [
        bench.speedup(method, kind, temperature)
        for method in bench.methods
        for kind in bench.kinds
        for temperature in bench.temperatures
    ]
    return max((speedup.most for speedup in found if speedup is not None), default=0.0)


def _speedup_bar(method: str, speedup: Speedup | None) -> Bar:
    if speedup is None:
        return Bar(method, None, MISSING)
    median = speedup.median
    return Bar(method, median, f"{median:.2f}", speedup.least, speedup.most)


def _speedup_table(bench: Bench, temperature: float) -> Table:
    rows = [
        (
            method,
            *(_speedup_words(bench.speedup(method, kind, temperature)) for kind in bench.kinds),
            decimals(bench.mean_speedup(method, temperature), 2),
        )
        for method in bench.methods
    ]
    return Table(("method", *bench.kinds, "mean"), tuple(rows))


def _speedup_words(speedup: Speedup | None) -> str:
    if speedup is None:
        return MISSING
    return f"{speedup.median:.2f}\n{speedup.least:.2f} to {speedup.most:.2f}"


def acceptance_figure(bench: Bench) -> Figure:
    """Lines by position, for methods that told theirs."""
    found = {method: bench.acceptance_by_position(method) for method in drafting_methods(bench)}
    shares = {method: line for method, line in found.items() if line}
    longest = max(map(len, shares.values()), default=0)
    rows = [
        (
            method,
            percent(bench.acceptance(method)),
            *(percent(line[place]) if place < len(line) else "" for place in range(longest)),
        )
        for method, line in found.items()
    ]
    table = Table(("method", "all", *map(str, range(1, longest + 1))), tuple(rows))
    heading = "Acceptance by position"
    if not shares:
        return Figure(heading, "Not measured.", None, table)
    chart = share_chart(
        "Acceptance by position in the draft",
        "One line for each method. All positions together: "
        + ", ".join(f"{method} {percent(bench.acceptance(method))}" for method in shares),
        {method: dict(enumerate(line, start=1)) for method, line in shares.items()},
        colours(bench.methods),
        "position in the draft",
        "position {number}: {share} accepted",
    )
    caption = (
        "Of the tokens drafted at a position, the share that was accepted, all temperatures "
        "together. Late positions are drafted seldom, and only where a draft looks promising."
    )
    return Figure(heading, caption, chart, table)


def cost_figure(bench: Bench) -> Figure:
    """The measured cost curve, with the lengths that were chosen."""
    heading = "Cost of a pass"
    seconds = bench.cost_seconds
    steps = bench.lengths(AUTO)
    if len(seconds) < 2 or not seconds.get(1):
        return Figure(heading, "Not measured.", None, Table(("tokens",), ()))
    costs = {n: taken / seconds[1] for n, taken in seconds.items()}
    chart = cost_chart(
        "Cost of a pass over several tokens",
        f"A pass over {max(costs)} tokens costs {costs[max(costs)]:.2f} passes over one."
        + (
            f" Circles show how many tokens {AUTO} drafted, by share of steps."
            if sum(steps)
            else ""
        ),
        costs,
        steps,
    )
    caption = "The flatter the curve, the less a longer draft costs to verify."
    if sum(steps):
        caption += (
            f" Circles are the lengths {AUTO} chose, 1 + the drafted tokens, their area the share "
            "of steps."
        )
    return Figure(heading, caption, chart, _cost_table(seconds, costs, steps))


def _cost_table(seconds: dict[int, float], costs: dict[int, float], steps: list[int]) -> Table:
    chosen = {1 + drafted: count for drafted, count in enumerate(steps) if count}
    rows = [
        (
            str(n),
            f"{1000 * seconds[n]:.2f}" if n in seconds else MISSING,
            f"{cost_at(costs, n):.2f}" if n in seconds else MISSING,
            f"{chosen.get(n, 0):,}" if steps else MISSING,
        )
        for n in sorted({*seconds, *chosen})
    ]
    header = ("tokens in a pass", "milliseconds", "cost in passes over one", f"steps of {AUTO}")
    return Table(header, tuple(rows))


def rate_figure(bench: Bench) -> Figure:
    """Tokens per second by temperature and method, against the wall."""
    rates = {
        (method, temperature): comparable_rate(bench, method, temperature)
        for method in bench.methods
        for temperature in bench.temperatures
    }
    groups = [
        Group(
            f"temperature {temperature:g}",
            tuple(
                Bar(method, rates[method, temperature], decimals(rates[method, temperature], 1))
                for method in bench.methods
            ),
        )
        for temperature in bench.temperatures
    ]
    chart = bar_chart(
        "Decode rate of each method, in tokens per second",
        wall_sentence(bench),
        groups,
        colours(bench.methods),
        Reference(bench.wall, _wall_words(bench)),
    )
    rows = [
        (method, *(decimals(rates[method, temperature], 1) for temperature in bench.temperatures))
        for method in bench.methods
    ]
    header = ("method", *(f"temperature {temperature:g}" for temperature in bench.temperatures))
    sentence = wall_sentence(bench)
    caption = f"{sentence[0].upper()}{sentence[1:]}."
    return Figure("Tokens per second", caption, chart, Table(header, tuple(rows)))


def _wall_words(bench: Bench) -> tuple[str, ...]:
    wall, bandwidth = bench.wall, bench.bandwidth_bytes_per_second
    if wall is None or bandwidth is None:
        return ("wall: not measured",)
    source = bench.bandwidth_source or "source unknown"
    return (f"wall: {wall:.1f} tok/s", f"{gigabytes(bandwidth)}/s, {source}")
