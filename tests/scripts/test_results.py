"""Tables of speeds: written from what was measured, in both pages, with the error of each mean."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from app.bench.results import Bench
from scripts import results
from tests.fixtures.benches import synthetic_bench


def of_two() -> Bench:
    """Two answers at 1.5 and 1.0 times plain decoding."""
    bench, one = synthetic_bench(), synthetic_bench().runs[0]
    one = replace(one, kind="chat", temperature=0.0, round=0, tokens=100)
    runs = [
        replace(one, method=method, prompt=prompt, seconds=seconds)
        for method, prompt, seconds in (
            ("off", 0, 3.0),
            ("off", 1, 2.0),
            ("auto", 0, 2.0),
            ("auto", 1, 2.0),
        )
    ]
    return replace(
        bench,
        runs=tuple(runs),
        methods=("off", "auto"),
        kinds=("chat",),
        temperatures=(0.0,),
        rounds=1,
    )


def test_errors_are_those_of_answers() -> None:
    log = math.log(1.5)  # two values, 0 and log: their standard error is half of that
    assert results.error(of_two(), "auto", 0.0) == pytest.approx(log)
    made = results.record(of_two(), machine="here", label="it", learned="")
    assert made["summary"][0]["speedup"]["chat"]["median"] == pytest.approx(1.25)
    assert (
        "| it (1 round) | auto, T=0 | 1.25 | - | - | - | - | - | 1.25 ± 0.51 |"
        in results.details([made])
    )


def test_tables_are_apart_by_machine_and_day() -> None:
    made = results.record(synthetic_bench(), machine="here", label="it", learned="")
    other = {**made, "machine": "there", "learned": "same"}
    whole = results.details([made, other])
    assert whole.index("here, ") < whole.index("it (3 rounds) |") < whole.index("there, ")
    assert "it (3 rounds, learned)" in whole
    assert results.summary([made, other]).count("\n| it") == 1
    assert "| 2.64 | 1.41 | 1.00 |" in results.summary([made])


@pytest.mark.parametrize(
    ("page", "table"), [("README.md", results.summary), ("docs/speed/results.md", results.details)]
)
def test_pages_have_what_was_measured(page: str, table: object) -> None:
    kept = json.loads(results.MEASURED.read_text(encoding="utf-8"))
    assert callable(table)
    assert f"\n{table(kept)}\n" in (results.ROOT / page).read_text(encoding="utf-8")


def test_only_what_stands_between_the_marks_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- results: begin -->\nold\n<!-- results: end -->\nb\n", encoding="utf-8")
    results.write(page, "new\\1")
    results.write(page, "new\\1")
    assert page.read_text() == "a\n<!-- results: begin -->\n\nnew\\1\n\n<!-- results: end -->\nb\n"
