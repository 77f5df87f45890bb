"""What changed between two benches of the same questions, beyond what noise explains."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.bench.results import PLAIN, SCHEMA, Bench, Run, jackknife, ratio_of, sums, total
from app.bench.suites import Suite
from app.printable import one_line
from backends.base import UsageError
from backends.base.safe_files import explained


def old_bench(file: Path, suite: Suite) -> Bench:
    """A bench of a suite's questions, as `bench --json` wrote it.

    Raises:
        UsageError: it cannot be read, is none, or asked other questions.
    """
    try:
        with explained(f"cannot read {file}"):
            told = file.read_bytes()
        old = TypeAdapter(Bench).validate_json(told)
    except ValidationError as error:
        place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        why = f"{place} is missing or of another type" if place else "it holds no JSON object"
        raise UsageError(f"{file} is no result of bench --json", why) from error
    if (schema := json.loads(told).get("schema")) != SCHEMA:
        why = f"its schema is {one_line(str(schema))}, and this version reads {SCHEMA}"
        raise UsageError(f"{file} cannot be compared", why)
    if (old.questions_sha256 or old.suite) not in (suite.sha256, suite.name):
        raise UsageError(f"{file} cannot be compared", f"it asked other questions: {old.suite}")
    return old


@dataclass(frozen=True, slots=True)
class Change:
    """A rate now over before: plain's in tokens per second, others' speedup over plain.

    error: twice its standard error, over the answers that both benches have; None for under three.
    """

    method: str
    kind: str
    temperature: float
    before: float
    now: float
    ratio: float
    error: float | None

    @property
    def is_change(self) -> bool:
        return self.error is not None and abs(self.ratio - 1) > self.error

    def __str__(self) -> str:
        what = "tok/s" if self.method == PLAIN else "speedup"
        digits = 1 if self.method == PLAIN else 2
        figures = f"{self.before:.{digits}f} before, {self.now:.{digits}f} now"
        error = "" if self.error is None else f" ± {self.error:.2f}"
        place = f"{self.method}, {self.kind}, temperature {self.temperature:g}"
        return f"{place}: {what} {figures}, ratio {self.ratio:.2f}{error}"


_FACTS = ("model", "quantization", "device", "backend", "threads", "max_tokens")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two benches of the same questions.

    facts: those that differ, before and now. other_answers: of plain decoding at temperature 0, and
    how many of them both have.
    """

    date: str
    facts: dict[str, tuple[Any, Any]]
    changes: tuple[Change, ...]
    other_answers: tuple[int, int]

    @classmethod
    def of(cls, old: Bench, new: Bench) -> "Comparison":
        facts = {name: (getattr(old, name), getattr(new, name)) for name in _FACTS}
        known = [
            (before, now)
            for before, now in _pairs(old, new, PLAIN, None, 0.0).values()
            if before.answer and now.answer
        ]
        return cls(
            old.date,
            {name: both for name, both in facts.items() if both[0] != both[1]},
            tuple(_changes(old, new)),
            (sum(before.answer != now.answer for before, now in known), len(known)),
        )

    def lines(self) -> list[str]:
        beyond = [change for change in self.changes if change.is_change]
        unknown = sum(change.error is None for change in self.changes)
        same = len(self.changes) - len(beyond) - unknown
        other, both = self.other_answers
        return [
            f"Against the bench of {self.date}:",
            *(
                f"  {name}: {before} before, {now} now"
                for name, (before, now) in self.facts.items()
            ),
            *(f"  {change}" for change in beyond),
            f"  {same} rates did not change by more than their errors"
            + (f"; of {unknown} it is unknown, as it takes three answers" if unknown else ""),
            f"  {other} of {both} plain answers at temperature 0 differ",
        ]


def _pairs(
    old: Bench, new: Bench, method: str, kind: str | None, temperature: float
) -> dict[tuple[Any, ...], tuple[Run, Run]]:
    """The answers to the same turns of the same rounds, before and now."""
    before, now = (
        {
            (run.kind, run.prompt, run.turn, run.round): run
            for run in bench.select(method, kind, temperature)
        }
        for bench in (old, new)
    )
    return {key: (before[key], now[key]) for key in before if key in now}


def _changes(old: Bench, new: Bench) -> Iterator[Change]:
    for method, kind, temperature in product(new.methods, new.kinds, new.temperatures):
        plain = _pairs(old, new, PLAIN, kind, temperature)
        compared = _pairs(old, new, method, kind, temperature)
        units = [
            [
                figure
                for run, base in zip(compared[key][::-1], plain[key][::-1], strict=True)
                for one in ((run,) if method == PLAIN else (run, base))
                for figure in sums([one])
            ]
            for key in compared
            if key in plain
        ]
        every = total(units)
        half = len(every) // 2
        before, now, ratio = map(ratio_of, (every[half:], every[:half], every))
        if before and now and ratio:
            yield Change(method, kind, temperature, before, now, ratio, jackknife(units))
