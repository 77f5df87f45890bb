"""The results of a bench as plain text for a terminal of about 90 columns."""

from collections.abc import Sequence
from textwrap import fill

from app.bench.results import Bench, Speedup
from app.bench.wording import (
    SLOWER,
    comparable_rate,
    decimals,
    idle_sentences,
    percent,
    round_sentences,
    shape_sentences,
    spread_sentences,
    wall_sentence,
)

_LONGEST_NAME = 24
"""A longer method name is put on a line of its own, so that the columns fit the terminal."""

_MARK = "!"
_LEGEND = f"{_MARK} slower than plain in every round"


def table(bench: Bench) -> str:
    """A block for each temperature, then the spread, the bandwidth limit and the notes."""
    blocks = [_block(bench, temperature) for temperature in bench.temperatures]
    lines = [
        *([_LEGEND] if _any_slower(bench) else []),
        *idle_sentences(bench),
        *shape_sentences(bench),
        *spread_sentences(bench),
        wall_sentence(bench),
        *bench.notes,
    ]
    below = "\n".join(fill(line, 90, subsequent_indent="  ") for line in lines)
    return "\n\n".join([*round_sentences(bench), *blocks, below])


def _block(bench: Bench, temperature: float) -> str:
    header = ["", *(f"{name} " for name in (*bench.kinds, "mean")), "tok/s", "acceptance"]
    rows = [[method, *_cells(bench, method, temperature)] for method in bench.methods]
    title = f"Temperature {temperature:g}: speedup against plain decoding"
    title += ", median of the rounds" if bench.rounds > 1 else ""
    return "\n".join([title, *_aligned([header, *rows])])


def _cells(bench: Bench, method: str, temperature: float) -> list[str]:
    return [
        *_speedups(bench, method, temperature),
        decimals(comparable_rate(bench, method, temperature), 1),
        percent(bench.acceptance(method, temperature)),
    ]


def _speedups(bench: Bench, method: str, temperature: float) -> list[str]:
    """The median of each kind, marked if every round was slower, then their mean."""
    speedups = [bench.speedup(method, kind, temperature) for kind in bench.kinds]
    mean = bench.mean_speedup(method, temperature)
    is_slower = mean is not None and mean < SLOWER and any(map(_is_slower, speedups))
    return [*map(_cell, speedups), _marked(mean, is_slower=is_slower)]


def _cell(speedup: Speedup | None) -> str:
    return _marked(speedup.median if speedup else None, is_slower=_is_slower(speedup))


def _is_slower(speedup: Speedup | None) -> bool:
    """Whether noise does not explain it: no round was as fast as plain decoding."""
    return speedup is not None and speedup.median < SLOWER and speedup.most < 1.0


def _any_slower(bench: Bench) -> bool:
    return any(
        _MARK in cell
        for method in bench.methods
        for temperature in bench.temperatures
        for cell in _speedups(bench, method, temperature)
    )


def _marked(value: float | None, *, is_slower: bool) -> str:
    """A speedup with its mark, or with a blank in its place to keep digits aligned."""
    return decimals(value, 2) + (_MARK if is_slower else " ")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = max(len(row[0]) for row in rows if len(row[0]) <= _LONGEST_NAME)
    return [line for row in rows for line in _lines(row, widths)]


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    name, *cells = row
    padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
    figures = " ".join(padded).rstrip()
    if len(name) > widths[0]:
        return [name, f"{'':{widths[0]}} {figures}"]
    return [f"{name:{widths[0]}} {figures}"]
