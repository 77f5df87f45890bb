"""Joins reports of several machines into one table: costs of passes, and what drafting gains.

Run: python -m scripts.join_reports FILE-OR-FOLDER … [--csv]

The files are those of `specchat bench --report`, `specchat doctor --report` and `python -m
scripts.measure_passes --json` (docs/reference/json.md); others are named and left out.
"""

import argparse
import csv
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from app.bench.report import FORMAT, SCHEMA
from app.bench.results import PLAIN
from app.learned.store import MALFORMED, number
from models.bounded_files import read_object

_WIDTHS = (2, 4, 8, 16, 32)
_KEYS = ("machine", "model", "engine", "device", "threads", "date")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069|<>`]|^[=+@-]+")
"""What others wrote must neither end a cell nor be a formula, markup or a terminal's command."""

Row = dict[str, str]


def _text(value: object) -> str:
    return " ".join(_UNSAFE.sub(" ", str(value)).split())[:60]


def _row(
    about: Mapping[str, Any],
    model: Mapping[str, Any],
    passes: Mapping[str, Any],
    series: Iterable[Mapping[str, Any]],
) -> Row:
    """Raises any of MALFORMED."""
    machine, name = about["machine"], model.get("name") or model.get("architecture")
    cards = ", ".join(gpu["name"] for gpu in machine["gpus"])
    size = f"{number(model['parameters']) / 1e9:.2g}B {model['quantization']}" if model else ""
    row = {
        "machine": _text(f"{machine['processor']}, {int(machine['physical_cores'])} cores {cards}"),
        "model": _text(f"{name or ''} {size}"),
        "engine": _text(" ".join(str(model.get("engine", "")).split()[:2])),
        **{key: _text(model.get(key, "")) for key in ("device", "threads")},
        "date": _text(about.get("date", ""))[:10],
    }
    if bandwidth := machine["bandwidth_bytes_per_second"]:
        row["GB/s"] = f"{number(bandwidth) / 1e9:.1f}"
    if passes:
        plain = number(passes["1"], is_positive=True)
        row["plain, ms"] = f"{1e3 * plain:.2f}"
        curve = {n: number(passes[str(n)]) / plain for n in _WIDTHS if str(n) in passes}
        row |= {f"{n} tokens": f"{cost:.2f}" for n, cost in curve.items()}
    gains: dict[str, list[float | None]] = {}
    for one in (each for each in series if each["method"] != PLAIN):
        column = _text(f"{one['method']}, T={number(one['temperature']):g}")
        speedup = None if one["speedup"] is None else number(one["speedup"], is_positive=True)
        gains.setdefault(column, []).append(speedup)
    for column, found in gains.items():  # of a bench that was stopped some have fewer kinds
        if None not in found and len(found) == max(map(len, gains.values())):
            row[column] = f"{geometric_mean(filter(None, found)):.2f}"
    return row


def rows_of(path: Path) -> list[Row]:
    """Rows of one file.

    Raises:
        ValueError: it is none of ours, or damaged.
    """
    found = read_object(path)
    is_report = (found.get("format"), found.get("schema")) == (FORMAT, SCHEMA)
    if not is_report and not {"machine", "models"} <= found.keys():
        raise ValueError("it is no report")
    try:
        if is_report:
            return [_row(found, found["model"] or {}, found["passes"], found["series"])]
        passes = ({**one, "name": one["model"]} for one in found["models"])
        return [_row(found, one, one["seconds"], ()) for one in passes]
    except MALFORMED as error:
        raise ValueError(f"it is damaged ({_text(repr(error))})") from error


def joined(rows: Sequence[Row]) -> list[list[str]]:
    """A head, and the rows by machine, model and engine; "" where something was not measured."""
    figures = ["GB/s", "plain, ms", *(f"{n} tokens" for n in _WIDTHS)]
    gains = sorted({key for row in rows for key in row} - {*_KEYS, *figures})
    head = [*_KEYS, *(one for one in figures if any(one in row for row in rows)), *gains]
    return [head, *sorted([row.get(column, "") for column in head] for row in rows)]


def main(words: Sequence[str] | None = None) -> None:
    """Print the table; ends with 1 if there is no report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", type=Path, nargs="+", metavar="FILE-OR-FOLDER")
    parser.add_argument("--csv", action="store_true")
    given = parser.parse_args(words)
    rows: list[Row] = []
    for place in given.places:
        for file in sorted(place.glob("**/*.json")) if place.is_dir() else [place]:
            try:
                rows += rows_of(file)
            except ValueError as error:
                print(f"left out {file}: {error}", file=sys.stderr)
    if not rows:
        sys.exit(1)
    head, *lines = joined(rows)
    if given.csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([head, *lines])
        return
    for cells in (head, ["---"] * len(head), *lines):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
