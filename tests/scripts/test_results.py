"""Tables of speeds: written from what was measured, in both pages, with the error of each mean."""

import json
from pathlib import Path

import pytest

from scripts import results
from tests.fixtures.benches import synthetic_bench


def test_errors_stand_beside_means() -> None:
    made = results.record(synthetic_bench(), machine="here", label="it", learned="")
    row = next(
        one for one in made["summary"] if (one["method"], one["temperature"]) == ("auto", 0.0)
    )
    row |= {"mean_speedup": 1.25, "mean_speedup_error": 0.514}
    assert (
        "| it (3 rounds) | auto, T=0 | 1.00 | 1.12 | 2.64 | 1.41 | 1.05 | 1.88 | 1.25 ± 0.51 |"
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
