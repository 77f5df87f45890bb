"""The results of a bench as a self-contained HTML page: charts, captions, tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.bench.plots import Bar, bar_chart, cost_chart, share_chart
from app.bench.results import AUTO, Bench, Speedup
from app.bench.wording import (
    MISSING,
    SLOWER,
    comparable_rate,
    decimals,
    drafting_methods,
    idle_sentences,
    main_method,
    parameters,
    percent,
    round_sentences,
    same_token_sentences,
    sentence,
    shape_sentences,
    shape_shares,
    spread_sentences,
    wall_sentence,
)


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers as text; the first cell of a row names it."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart as SVG with its caption and table; None if there is nothing to draw.

    description: a text alternative to the chart.
    """

    heading: str
    caption: str
    table: Table
    chart: str | None = None
    description: str = ""


def speedup_figure(bench: Bench, temperature: float) -> Figure:
    """Speedup by kind of prompt and method, with whiskers if there are several rounds."""
    methods = drafting_methods(bench)
    means = {method: bench.mean_speedup(method, temperature) for method in methods}
    groups = {
        kind: [_speedup_bar(method, bench.speedup(method, kind, temperature)) for method in methods]
        for kind in bench.kinds
    }
    mean = "mean of all kinds"
    groups[mean] = [Bar(method, value, decimals(value, 2)) for method, value in means.items()]
    listed = ", ".join(f"{method} {decimals(value, 2)}" for method, value in means.items())
    return Figure(
        f"Temperature {temperature:g}",
        "Bars are medians over the rounds; whiskers span the slowest to the fastest round."
        if bench.rounds > 1
        else "Bars show a single round.",
        _speedup_table(bench, temperature),
        bar_chart(
            groups, bench.methods, "speedup; line: plain decoding", 1.0, _highest_speedup(bench)
        )
        if methods
        else None,
        f"Speedup by kind of prompt and method at temperature {temperature:g}. {mean}: {listed}",
    )


def _highest_speedup(bench: Bench) -> float:
    """The fastest round, so that the charts of all temperatures share an axis."""
    speedups = [
        bench.speedup(method, kind, temperature)
        for method in bench.methods
        for kind in bench.kinds
        for temperature in bench.temperatures
    ]
    return max((speedup.most for speedup in speedups if speedup is not None), default=1.0)


def _speedup_bar(method: str, speedup: Speedup | None) -> Bar:
    if speedup is None:
        return Bar(method, None, MISSING)
    median = speedup.median
    return Bar(method, median, f"{median:.2f}", speedup.least, speedup.most)


def _speedup_table(bench: Bench, temperature: float) -> Table:
    rows = [
        (
            method,
            *(
                _speedup_cell(bench.speedup(method, kind, temperature), bench.rounds)
                for kind in bench.kinds
            ),
            decimals(bench.mean_speedup(method, temperature), 2),
        )
        for method in bench.methods
    ]
    return Table(("method", *bench.kinds, "mean"), tuple(rows))


def _speedup_cell(speedup: Speedup | None, rounds: int) -> str:
    if speedup is None:
        return MISSING
    median = f"{speedup.median:.2f}"
    return f"{median}\n{speedup.least:.2f} to {speedup.most:.2f}" if rounds > 1 else median


def acceptance_figure(bench: Bench) -> Figure:
    """Acceptance by position in the draft, for methods that report it."""
    by_position = {
        method: bench.acceptance_by_position(method) for method in drafting_methods(bench)
    }
    shares = {
        method: dict(enumerate(line, start=1)) for method, line in by_position.items() if line
    }
    longest = max(map(len, by_position.values()), default=0)
    rows = [
        (method, percent(bench.acceptance(method)), *_percentages(line, longest))
        for method, line in by_position.items()
    ]
    axis = "position in the draft"
    return Figure(
        "Acceptance by position",
        "Share of the tokens drafted at a position that were accepted, all temperatures together. "
        "Late positions are drafted rarely, and only where a draft looks promising."
        if shares
        else "Not measured.",
        Table(("method", "all", *map(str, range(1, longest + 1))), tuple(rows)),
        share_chart(shares, bench.methods, axis) if shares else None,
        "Acceptance by position in the draft. All positions together: "
        + ", ".join(f"{method} {percent(bench.acceptance(method))}" for method in shares),
    )


def length_figure(bench: Bench) -> Figure:
    """Accepted tokens per draft as a histogram, for methods that report their steps."""
    counts = {method: bench.accepted_lengths(method) for method in drafting_methods(bench)}
    shares = {method: dict(enumerate(_shares(steps))) for method, steps in counts.items() if steps}
    longest = max(map(len, counts.values()), default=0)
    rows = [
        (
            method,
            f"{sum(steps):,}",
            decimals(_mean_length(steps), 2),
            *_percentages(_shares(steps), longest),
            shape_shares(bench.steps_by_shape(method)) or MISSING,
        )
        for method, steps in counts.items()
    ]
    caption = ["Share of the drafts by how many of their tokens were accepted, all temperatures "
               "together.", *map(sentence, shape_sentences(bench))]  # fmt: skip
    axis = "accepted tokens of a draft"
    return Figure(
        "Accepted length",
        " ".join(caption) if shares else "Not measured.",
        Table(
            ("method", "drafts", "mean", *map(str, range(longest)), "steps by shape"), tuple(rows)
        ),
        share_chart(shares, bench.methods, axis) if shares else None,
        "Drafts by accepted length. Mean: "
        + ", ".join(f"{method} {decimals(_mean_length(counts[method]), 2)}" for method in shares),
    )


def _percentages(shares: Sequence[float], columns: int) -> list[str]:
    return [*map(percent, shares), *[""] * (columns - len(shares))]


def _shares(counts: Sequence[int]) -> list[float]:
    return [count / sum(counts) for count in counts]


def _mean_length(counts: Sequence[int]) -> float | None:
    total = sum(length * count for length, count in enumerate(counts))
    return total / sum(counts) if counts else None


def cost_figure(bench: Bench) -> Figure:
    """The measured cost of a pass, with the draft lengths that auto chose."""
    heading = "Cost of a pass"
    seconds = bench.cost_seconds
    if len(seconds) < 2 or not seconds.get(1):
        return Figure(heading, "Not measured.", Table(("tokens",), ()))
    steps = bench.lengths(AUTO)
    costs = {n: taken / seconds[1] for n, taken in sorted(seconds.items())}
    circles = f" Circles are the lengths {AUTO} chose; their area is the share of steps."
    return Figure(
        heading,
        "The flatter the curve, the less a longer draft costs to verify."
        + (circles if sum(steps) else ""),
        _cost_table(seconds, costs, steps),
        cost_chart(costs, steps),
        f"A pass over {max(costs)} tokens costs {costs[max(costs)]:.2f} passes over one.",
    )


def _cost_table(
    seconds: Mapping[int, float], costs: Mapping[int, float], steps: Sequence[int]
) -> Table:
    chosen = {1 + drafted: count for drafted, count in enumerate(steps) if count}
    rows = [
        (
            str(n),
            f"{1000 * seconds[n]:.2f}" if n in seconds else MISSING,
            f"{costs[n]:.2f}" if n in costs else MISSING,
            f"{chosen.get(n, 0):,}" if steps else MISSING,
        )
        for n in sorted({*seconds, *chosen})
    ]
    header = ("tokens in a pass", "milliseconds", "cost in passes over one", f"steps of {AUTO}")
    return Table(header, tuple(rows))


def rate_figure(bench: Bench) -> Figure:
    """Tokens per second by temperature and method, against the bandwidth limit."""
    headings = [f"temperature {temperature:g}" for temperature in bench.temperatures]
    rates = {
        method: [comparable_rate(bench, method, temperature) for temperature in bench.temperatures]
        for method in bench.methods
    }
    groups = {
        heading: [
            Bar(method, values[place], decimals(values[place], 1))
            for method, values in rates.items()
        ]
        for place, heading in enumerate(headings)
    }
    rows = [(method, *(decimals(value, 1) for value in values)) for method, values in rates.items()]
    axis = "tokens per second"
    if bench.wall is not None:
        axis += f"; line: wall, {bench.wall:.1f}"
    return Figure(
        "Tokens per second",
        sentence(wall_sentence(bench)),
        Table(("method", *headings), tuple(rows)),
        bar_chart(groups, bench.methods, axis, bench.wall),
        "Decode rate of each method, in tokens per second.",
    )


@dataclass(frozen=True, slots=True)
class Card:
    """The headline: the main method's speedup at one temperature."""

    speedup: str
    slower: bool
    where: str
    acceptance: str


def page(bench: Bench) -> str:
    """Render the page as HTML."""
    environment = Environment(
        loader=PackageLoader("app", "bench"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        bench=bench,
        facts=_facts(bench),
        cards=[_card(bench, temperature) for temperature in bench.temperatures],
        warnings=[sentence(text) for text in round_sentences(bench)],
        speedups=[speedup_figure(bench, temperature) for temperature in bench.temperatures],
        acceptance=acceptance_figure(bench),
        lengths=length_figure(bench),
        cost=cost_figure(bench),
        rates=rate_figure(bench),
        measured=_measured(bench),
    )


def _facts(bench: Bench) -> list[tuple[str, str]]:
    """Name and value of what was measured, where and when; unknown values are left out."""
    facts = [
        ("device", bench.device),
        ("quantization", bench.quantization),
        ("size", parameters(bench.parameters)),
        ("engine", f"{bench.backend}, {bench.threads} {_plural('thread', bench.threads)}"),
        ("suite", bench.suite),
        ("date", bench.date),
    ]
    return [(name, fact) for name, fact in facts if fact]


def _card(bench: Bench, temperature: float) -> Card:
    method = main_method(bench)
    mean = bench.mean_speedup(method, temperature)
    runs = bench.select(method, temperature=temperature)
    accepted, drafted = sum(run.accepted for run in runs), sum(run.drafted for run in runs)
    kinds = f"{len(bench.kinds)} {_plural('kind', len(bench.kinds))} of prompts"
    return Card(
        decimals(mean, 2),
        mean is not None and mean < SLOWER,
        f"{method} at temperature {temperature:g}, mean of {kinds}",
        f"acceptance {percent(bench.acceptance(method, temperature))} "
        f"(accepted {accepted:,} of {drafted:,} drafted)"
        if drafted
        else "nothing was drafted",
    )


def _measured(bench: Bench) -> list[tuple[str, str]]:
    """Term and explanation of how the figures came about."""
    prompts = len({(run.kind, run.prompt) for run in bench.runs})
    rounds = f"{bench.rounds}, interleaved: every method takes its turn in each round, so a "
    rounds += "machine that grows warm or busy affects all of them alike."
    return [
        ("rounds", rounds),
        *(("spread", sentence(text)) for text in spread_sentences(bench)),
        *(("idle", sentence(text)) for text in idle_sentences(bench)),
        ("replies", f"{prompts} {_plural('prompt', prompts)}, up to {bench.max_tokens} tokens per "
         f"reply, at temperature {_listed(bench.temperatures)}."),
        ("speedup", "Decode rate over that of plain decoding (off) in the same round, median over "
         "the rounds. The decode rate is the number of tokens after the first over the seconds "
         "they took. Means over kinds are geometric."),
        ("acceptance", "Accepted over drafted tokens."),
        ("wall", "Memory bandwidth over the bytes that plain decoding reads per token: the highest "
         "rate that memory allows plain decoding; lower where a part of them comes from disk."),
        *(("same tokens", sentence(text)) for text in same_token_sentences(bench)),
    ]  # fmt: skip


def _listed(temperatures: tuple[float, ...]) -> str:
    return " and ".join(f"{temperature:g}" for temperature in temperatures)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
