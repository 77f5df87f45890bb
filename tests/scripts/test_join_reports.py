"""Reports of others become one table; what is no report, or damaged, is named and left out."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.bench.report import measured, report
from scripts.join_reports import main
from tests.fixtures.benches import synthetic_bench
from tests.fixtures.scripted import ScriptedModel

Write = Callable[..., Path]


def machine_of(processor: str) -> dict[str, Any]:
    return {
        "system": "Linux",
        "processor": processor,
        "physical_cores": 2,
        "memory_bytes": 1 << 34,
        "gpus": [],
        "engines": {},
        "bandwidth_bytes_per_second": 2.5e10,
        "bandwidth_source": "measured",
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a report of a bench, or another text."""

    def one(name: str, processor: str = "", text: str = "", **more: Any) -> Path:
        info = replace(ScriptedModel(["a"]).info, engine="llama-cpp-python 0.3.36 CPU")
        found = measured(synthetic_bench(), "demo", info, {}) | more
        path = tmp_path / name
        path.write_text(
            text or json.dumps(report("0.1.0", "2026-11-28", machine_of(processor), **found)),
            encoding="utf-8",
        )
        return path

    return one


def table(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(capsys.readouterr().out))]


def test_rows_have_curves_and_gains(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(write("b.json", "Zen")), str(write("a.json", "Arm")), "--csv"])
    first, second = table(capsys)
    assert (first["machine"], second["machine"]) == ("Arm, 2 cores", "Zen, 2 cores")
    assert (first["model"], first["engine"]) == ("demo 1e-09B F32", "llama-cpp-python 0.3.36")
    bench = synthetic_bench()
    costs = bench.cost_seconds
    assert first["plain, ms"] == f"{1e3 * costs[1]:.2f}"
    assert first["16 tokens"] == f"{costs[16] / costs[1]:.2f}"
    assert first["auto, T=0"] == f"{bench.mean_speedup('auto', 0.0):.2f}"
    assert first["GB/s"] == "25.0"


def test_what_was_measured_on_fewer_kinds_is_no_mean(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = measured(synthetic_bench(), "demo", ScriptedModel(["a"]).info, {})["series"]
    part = [one for one in whole if one["method"] != "auto" or one["kind"] == "copy"]
    main([str(write("a.json", "Zen", series=part)), "--csv"])
    (row,) = table(capsys)
    assert row["lookup, T=0"]
    assert not {"auto, T=0", "off, T=0"} & row.keys()


def test_curves_alone_and_machines_alone_are_rows_too(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model: dict[str, Any] = {"model": "own.gguf", "parameters": 8e9, "quantization": "Q4_0"}
    model["seconds"] = {"1": 0.01, "4": 0.015}
    passes = {"schema": 1, "machine": machine_of("B"), "models": [model]}
    write("passes.json", text=json.dumps(passes))
    write("doctor.json", "A", model=None, passes={}, series=[])
    main([str(tmp_path)])
    rows = [line.strip(" |").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert rows[2][0] == "A, 2 cores"
    assert rows[3][:2] == ["B, 2 cores", "own.gguf 8B Q4_0"]
    assert rows[3][rows[0].index("4 tokens")] == "1.50"
    assert len(rows[2]) < len(rows[3]), "nothing was measured there"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"models": []}',
        '{"format": "specchat-report", "schema": 2}',
        '{"format": "specchat-report", "schema": 1, "machine": 5, "model": {}}',
        '{"machine": {}, "models": [{"model": "x"}]}',
    ],
)
def test_what_is_none_is_named_and_left_out(
    write: Write, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("bad.json", text=text)
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert f"left out {tmp_path / 'bad.json'}: it is" in capsys.readouterr().err
    write("good.json", "Zen")
    main([str(tmp_path), str(tmp_path / "missing.json")])
    shown = capsys.readouterr()
    assert "| Zen, 2 cores |" in shown.out
    assert "missing.json: it is no report" in shown.err


def test_costs_that_are_no_numbers_are_damage(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("zero.json", "Zen", passes={"1": 0.0})
    write("words.json", "Zen", passes={"1": "fast"})
    write("endless.json", text='{"machine": {}, "models": [{"model": "x", "seconds": {"1": NaN}}]}')
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert capsys.readouterr().err.count("damaged") == 3


def test_no_name_is_markup_or_a_formula(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write("a.json", "=cmd|x\n\x1b[2J<b>" + "y" * 999)
    main([str(file)])
    cells = capsys.readouterr().out.splitlines()[2].split(" | ")
    assert cells[0].startswith("| cmd x [2J b yyy")
    assert len(cells[0]) < 70
