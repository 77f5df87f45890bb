"""The results of a bench in words, and as plain text for a terminal of about 90 columns."""

from collections.abc import Sequence
from itertools import product
from textwrap import fill

from app.bench.results import AUTO, PLAIN, Bench
from models.byte_sizes import size_text

MISSING = "-"
SLOWER = 0.98
"""A speedup below it counts as slower than plain decoding; less is within the noise of rounds."""


def decimals(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.0f} %"


def comparable_rate(bench: Bench, method: str, temperature: float) -> float | None:
    """Tokens per second over all kinds; None if a kind is missing, because kinds differ in rate."""
    if any(bench.rate(method, kind, temperature) is None for kind in bench.kinds):
        return None
    return bench.rate(method, temperature=temperature)


def wall_sentence(bench: Bench) -> str:
    """The rate that memory, and a disk that is read, allow plain decoding, and its own rate."""
    wall, bandwidth = bench.wall, bench.bandwidth_bytes_per_second
    streamed, disk = bench.streamed_bytes_per_token, bench.disk_bytes_per_second
    reads = f"plain decoding reads {size_text(bench.bytes_per_token)} a token"
    if streamed:
        reads += f", {size_text(streamed)} of them from disk"
    ran = f"plain ran at {decimals(bench.rate(PLAIN), 1)}"
    if wall is None or bandwidth is None:
        unknown = "memory bandwidth" if bandwidth is None else "the disk's speed"
        return f"{reads}; {unknown} was not measured; {ran} tok/s"
    source = bench.bandwidth_source or "source unknown"
    gives = f"memory gives {size_text(bandwidth)}/s ({source})"
    if streamed and disk is not None:
        gives += f", the disk {size_text(disk)}/s"
    return f"{reads}; {gives}: at most {wall:.1f} tok/s; {ran}"


def round_sentences(bench: Bench) -> list[str]:
    if bench.rounds > 1:
        return []
    if bench.tells_latency:
        return ["one round; ± is twice the standard error over the questions of a kind"]
    return ["one round: how much rounds differ is unknown"]


def spread_sentences(bench: Bench) -> list[str]:
    """The largest deviation of a round from its median, if there are several rounds."""
    deviations = [
        (max(speedup.most - speedup.median, speedup.median - speedup.least) / speedup.median, place)
        for place in product(drafting_methods(bench), bench.kinds, bench.temperatures)
        if (speedup := bench.speedup(*place)) is not None
    ]
    if not deviations:
        return ["no speedup was measured"]
    if bench.rounds == 1:
        return []
    largest, (method, kind, temperature) = max(deviations)
    where = f"{method}, {kind}, temperature {temperature:g}"
    return [f"rounds deviate by at most {percent(largest)} from their median ({where})"]


def idle_sentences(bench: Bench) -> list[str]:
    """Names the methods that drafted nothing, whose difference from plain decoding is noise."""
    return [
        f"drafted nothing at temperature {temperature:g}, so the difference from plain is noise: "
        f"{'; '.join(idle)}"
        for temperature in bench.temperatures
        if (idle := [method for method in bench.methods if _is_idle(bench, method, temperature)])
    ]


def _is_idle(bench: Bench, method: str, temperature: float) -> bool:
    runs = bench.select(method, temperature=temperature)
    return method != PLAIN and any(run.steps for run in runs) and not any(r.drafted for r in runs)


def drafting_methods(bench: Bench) -> list[str]:
    return [method for method in bench.methods if method != PLAIN]


def main_method(bench: Bench) -> str:
    """The default method if it was measured, else the first that drafts."""
    return AUTO if AUTO in bench.methods else next(iter(drafting_methods(bench)), PLAIN)


def same_token_sentences(bench: Bench) -> list[str]:
    """How many replies of each method equal those of plain decoding at temperature 0."""
    counts: list[str] = []
    explanation = ""
    for method in drafting_methods(bench):
        compared = [
            run for run in bench.select(method, temperature=0.0) if run.same_tokens is not None
        ]
        same = sum(run.same_tokens is True for run in compared)
        if compared:
            counts.append(f"{method} {same:,} of {len(compared):,}")
        if any(run.steps and not run.same_tokens for run in compared):
            explanation = "; a pass over several tokens rounds differently and can flip near-ties"
    if not counts:
        return []
    listed = "; ".join(counts)
    return [f"answers identical to plain decoding at temperature 0: {listed}{explanation}"]


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


_LONGEST_NAME = 24
"""A longer method name is put on a line of its own, so that the columns fit the terminal."""

_MARK = "!"
_BY = "by more than its error", "in every round"
"""In one round, and in several."""

FIGURES = (
    "",
    *("speedup ", "end to end", "tokens/pass", "length", "acceptance", "first token", "tok/s"),
)
"""Names of the columns of figure_rows."""


def figure_rows(bench: Bench) -> dict[str, list[list[str]]]:
    """By kind of questions, and for all: what published suites tell of each method."""
    if not bench.tells_latency:
        return {}
    return {
        f"{kind or 'all kinds'}, temperature {temperature:g}": [
            _figure_row(bench, method, kind, temperature) for method in bench.methods
        ]
        for temperature, kind in product(bench.temperatures, (*bench.kinds, None))
    }


def _figure_row(bench: Bench, method: str, kind: str | None, temperature: float) -> list[str]:
    found = bench.figures(method, kind, temperature)
    if kind is None:
        slower = is_slower_in_all(bench, method, temperature)
        mean = bench.mean_speedup(method, temperature)
        speedup = with_error(mean, bench.mean_error(method, temperature))
    else:
        slower = is_slower(bench, method, temperature, kind)
        one = bench.speedup(method, kind, temperature)
        speedup = with_error(one.median, one.error) if one else MISSING
    return [
        method,
        speedup + (_MARK if slower else " "),
        decimals(found.end_to_end_speedup, 2),
        decimals(found.mean_accepted_tokens, 2),
        decimals(found.acceptance_length, 2),
        percent(found.acceptance),
        MISSING if found.ttft_seconds is None else f"{found.ttft_seconds:.2f} s",
        decimals(found.decode_tokens_per_second, 1),
    ]


def with_error(value: float | None, error: float | None) -> str:
    return decimals(value, 2) + (f" ± {error:.2f}" if error is not None else "")


def table(bench: Bench) -> str:
    """A block for each temperature, then the spread, the bandwidth limit and the notes."""
    cells = [
        [(method, _speedups(bench, method, temperature)) for method in bench.methods]
        for temperature in bench.temperatures
    ]
    figures = figure_rows(bench)
    blocks = [
        "\n".join([title, *_aligned([FIGURES, *rows])]) for title, rows in figures.items()
    ] or [
        _block(bench, temperature, rows)
        for temperature, rows in zip(bench.temperatures, cells, strict=True)
    ]
    is_marked = any(cell.endswith(_MARK) for rows in cells for _, row in rows for cell in row)
    lines = [
        *([f"{_MARK} slower than plain {_BY[bench.rounds > 1]}"] if is_marked else []),
        *idle_sentences(bench),
        *spread_sentences(bench),
        wall_sentence(bench),
        *bench.notes,
    ]
    below = "\n".join(fill(line, 90, subsequent_indent="  ") for line in lines)
    return "\n\n".join([*round_sentences(bench), *blocks, below])


def _block(bench: Bench, temperature: float, speedups: list[tuple[str, list[str]]]) -> str:
    header = ["", *(f"{name} " for name in (*bench.kinds, "mean")), "tok/s", "acceptance"]
    rows = [
        [
            method,
            *cells,
            decimals(comparable_rate(bench, method, temperature), 1),
            percent(bench.acceptance(method, temperature)),
        ]
        for method, cells in speedups
    ]
    title = f"Temperature {temperature:g}: speedup against plain decoding"
    title += ", median of the rounds" if bench.rounds > 1 else ""
    return "\n".join([title, *_aligned([header, *rows])])


def _speedups(bench: Bench, method: str, temperature: float) -> list[str]:
    """The median of each kind, marked if it is slower, or a blank to align digits; their mean."""
    slower = [is_slower(bench, method, temperature, kind) for kind in bench.kinds]
    speedups = [bench.speedup(method, kind, temperature) for kind in bench.kinds]
    mean = bench.mean_speedup(method, temperature)
    values = [*(speedup.median if speedup else None for speedup in speedups), mean]
    marks = [*slower, is_slower_in_all(bench, method, temperature)]
    return [
        decimals(value, 2) + (_MARK if mark else " ")
        for value, mark in zip(values, marks, strict=True)
    ]


def is_slower(bench: Bench, method: str, temperature: float, kind: str) -> bool:
    """Whether noise does not explain it: it drafted, and no round was as fast as plain decoding.

    Of a single round, whether it was slower by more than its error.
    """
    speedup = bench.speedup(method, kind, temperature)
    if speedup is None or _is_idle(bench, method, temperature):
        return False
    if bench.rounds == 1:
        return speedup.error is not None and speedup.median < min(SLOWER, 1 - speedup.error)
    return speedup.median < SLOWER and speedup.most < 1.0


def is_slower_in_all(bench: Bench, method: str, temperature: float) -> bool:
    """Whether a method is slower over all kinds, and in one of them beyond noise."""
    mean = bench.mean_speedup(method, temperature)
    slower = any(is_slower(bench, method, temperature, kind) for kind in bench.kinds)
    return slower and mean is not None and mean < SLOWER


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = max(len(row[0]) for row in rows if len(row[0]) <= _LONGEST_NAME)
    lines: list[str] = []
    for name, *cells in rows:
        figures = " ".join(map(str.rjust, cells, widths[1:])).rstrip()
        is_long = len(name) > widths[0]
        lines += [name] if is_long else []
        lines.append(f"{'' if is_long else name:{widths[0]}} {figures}")
    return lines
