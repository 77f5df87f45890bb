"""What a bench found, as plain text for a terminal of about 90 columns."""

from collections.abc import Sequence
from itertools import zip_longest

from app.bench.results import Bench
from app.bench.wording import MISSING, SLOWER, decimals, percent, spread_sentence, wall_sentence

_LONGEST_NAME = 24
"""A longer method takes a line of its own, so that the columns stay within the terminal."""

_MARK = "!"
_LEGEND = f"{_MARK} slower than plain"


def table(bench: Bench) -> str:
    """A block for each temperature, then the spread, the wall and the notes."""
    blocks = "\n\n".join(_block(bench, temperature) for temperature in bench.temperatures)
    lines = [_LEGEND] if _MARK in blocks else []
    lines += [spread_sentence(bench), wall_sentence(bench), *bench.notes]
    return "\n".join([blocks, "", *lines])


def _block(bench: Bench, temperature: float) -> str:
    header = ["", *bench.kinds, "mean", "tok/s", "acceptance"]
    rows = [[method, *_cells(bench, method, temperature)] for method in bench.methods]
    title = f"Temperature {temperature:g}: speedup against plain decoding, median of the rounds"
    return "\n".join([title, *_aligned(header, rows)])


def _cells(bench: Bench, method: str, temperature: float) -> list[str]:
    found = [bench.speedup(method, kind, temperature) for kind in bench.kinds]
    medians = [None if speedup is None else speedup.median for speedup in found]
    return [
        *(_speedup(value) for value in [*medians, bench.mean_speedup(method, temperature)]),
        decimals(bench.rate(method, temperature=temperature), 1),
        percent(bench.acceptance(method, temperature)),
    ]


def _speedup(value: float | None) -> str:
    """With room for the mark, so that digits stand below each other."""
    slower = value is not None and value < SLOWER
    return f"{decimals(value, 2)}{_MARK if slower else ' '}"


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    columns = list(zip_longest(header, *rows, fillvalue=MISSING))
    widths = [max(map(len, column)) for column in columns]
    widths[0] = max(len(row[0]) for row in rows if len(row[0]) <= _LONGEST_NAME or row is rows[0])
    return [line for row in [header, *rows] for line in _lines(row, widths)]


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    name, *cells = row
    figures = " ".join(
        cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)
    ).rstrip()
    if len(name) > widths[0]:
        return [name, f"{'':{widths[0]}} {figures}"]
    return [f"{name:{widths[0]}} {figures}"]
