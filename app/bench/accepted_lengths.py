"""How many tokens of a draft were accepted: the chart, and the table of its numbers."""

from collections.abc import Sequence

from app.bench.charts import colours
from app.bench.figures import Figure, Table
from app.bench.line_charts import share_chart
from app.bench.results import Bench
from app.bench.wording import MISSING, decimals, drafting_methods, percent, shape_sentences
from app.shapes import shape_shares


def length_figure(bench: Bench) -> Figure:
    """The histogram of each method that told its steps."""
    found = {method: bench.accepted_lengths(method) for method in drafting_methods(bench)}
    shares = {method: dict(enumerate(_shares(steps))) for method, steps in found.items() if steps}
    heading = "Accepted length"
    table = _table(bench, found)
    if not shares:
        return Figure(heading, "Not measured.", None, table)
    chart = share_chart(
        "Drafts by accepted length",
        "One line for each method. Tokens accepted of a draft on average: "
        + ", ".join(f"{method} {decimals(_mean(found[method]), 2)}" for method in shares),
        shares,
        colours(bench.methods),
        "drafted tokens that were accepted",
        "{number} accepted: {share} of the drafts",
    )
    caption = (
        "The share of drafts of which so many tokens were accepted, all temperatures together."
    )
    for sentence in shape_sentences(bench):
        caption += f" {sentence[0].upper()}{sentence[1:]}."
    return Figure(heading, caption, chart, table)


def _table(bench: Bench, found: dict[str, list[int]]) -> Table:
    longest = max(map(len, found.values()), default=0)
    rows = [
        (
            method,
            f"{sum(steps):,}",
            decimals(_mean(steps), 2),
            *(percent(share) for share in _shares(steps)),
            *[""] * (longest - len(steps)),
            shape_shares(bench.steps_by_shape(method)) or MISSING,
        )
        for method, steps in found.items()
    ]
    header = ("method", "drafts", "mean", *map(str, range(longest)), "steps by shape")
    return Table(header, tuple(rows))


def _shares(steps: Sequence[int]) -> list[float]:
    return [count / sum(steps) for count in steps]


def _mean(steps: Sequence[int]) -> float | None:
    accepted = sum(length * count for length, count in enumerate(steps))
    return accepted / sum(steps) if steps else None
