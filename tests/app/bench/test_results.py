"""Medians, means and shares that sum a bench up."""

import json
import math
from dataclasses import replace

import pytest

from app.bench.results import Bench, Run
from decoding.events import Shape
from tests.fixtures.benches import KINDS, METHODS, SPEEDS, synthetic_bench


def without(bench: Bench, method: str, kind: str | None = None) -> Bench:
    left = (run for run in bench.runs if run.method != method or kind not in (None, run.kind))
    return replace(bench, runs=tuple(left))


def test_a_speedup_is_the_median_of_the_rounds() -> None:
    bench = synthetic_bench()
    found = bench.speedup("auto", "copy", 0.0)
    assert found is not None
    assert found.median == pytest.approx(2.64)
    assert found.least == pytest.approx(2.64 * (1 - 0.04 * 1.5))
    assert found.most == pytest.approx(2.64 * (1 + 0.03 * 1.5))


def test_each_round_is_compared_with_its_own_plain_run() -> None:
    """A round in which the whole machine ran at half its rate must not count as a slow method."""
    bench = synthetic_bench()
    slowed = tuple(
        replace(run, seconds=2 * run.seconds) if run.round == 1 else run for run in bench.runs
    )
    found = replace(bench, runs=slowed).speedup("lookup", "code", 0.0)
    expected = bench.speedup("lookup", "code", 0.0)
    assert found is not None
    assert expected is not None
    assert (found.median, found.least, found.most) == pytest.approx(
        (expected.median, expected.least, expected.most)
    )


def test_the_rate_of_a_kind_is_over_all_its_prompts() -> None:
    """Tokens over seconds, so that a short reply counts for little."""
    bench = replace(
        synthetic_bench(("off",)),
        runs=(
            Run("chat", 0, 0.0, "off", 0, tokens=90, seconds=1.0),
            Run("chat", 1, 0.0, "off", 0, tokens=10, seconds=1.0),
        ),
    )
    assert bench.rate("off", "chat", 0.0) == 50.0


def test_plain_against_itself_is_one() -> None:
    bench = synthetic_bench()
    assert bench.mean_speedup("off", 0.0) == 1.0


def test_the_mean_is_geometric() -> None:
    bench = synthetic_bench()
    expected = math.prod(SPEEDS["auto"]) ** (1 / len(KINDS))
    assert bench.mean_speedup("auto", 0.0) == pytest.approx(expected)


@pytest.mark.parametrize("missing", ["auto", "off"])
def test_a_method_without_runs_has_no_figures(missing: str) -> None:
    bench = without(synthetic_bench(), missing)
    assert bench.speedup("auto", "chat", 0.0) is None
    assert bench.mean_speedup("auto", 0.0) is None
    assert bench.rate(missing) is None
    assert bench.acceptance(missing) is None
    assert bench.acceptance_by_position(missing) == []
    assert bench.lengths(missing) == []
    assert (bench.accepted_lengths(missing), bench.steps_by_shape(missing)) == ([], {})


def test_a_mean_over_fewer_kinds_is_no_mean() -> None:
    bench = without(synthetic_bench(), "lookup", "maths")
    assert bench.mean_speedup("lookup", 0.0) is None


def test_acceptance_is_accepted_of_drafted() -> None:
    bench = replace(
        synthetic_bench(("off", "auto")),
        runs=(
            Run("chat", 0, 0.0, "auto", 0, 10, 1.0, 9, 4, 1, (3, 1), (1, 0), (6, 2, 1)),
            Run("chat", 0, 0.8, "auto", 0, 10, 1.0, 5, 6, 6, (2, 2, 2), (2, 2, 2), (3, 0, 0, 2)),
        ),
    )
    assert bench.acceptance("auto") == 0.7
    assert bench.acceptance("auto", 0.0) == 0.25
    assert bench.acceptance("auto", 0.8) == 1.0
    assert bench.acceptance_by_position("auto") == pytest.approx([3 / 5, 2 / 3, 1.0])
    assert bench.lengths("auto") == [9, 2, 1, 2]


def test_accepted_lengths_and_shapes_are_added_up_over_runs() -> None:
    one = Run("chat", 0, 0.0, "auto", 0, 10, 1.0, accepted_lengths=(1, 0, 2))
    other = Run("code", 0, 0.8, "auto", 0, 10, 1.0, accepted_lengths=(3,))
    runs = (
        replace(one, steps_by_shape={Shape.LINE: 2, Shape.TREE: 1}),
        replace(other, steps_by_shape={Shape.LINE: 3, Shape.NONE: 7}),
    )
    bench = replace(synthetic_bench(("off", "auto")), runs=runs)
    assert bench.accepted_lengths("auto") == [4, 0, 2]
    assert bench.accepted_lengths("auto", 0.8) == [3]
    assert bench.steps_by_shape("auto") == {"line": 5, "tree": 1, "none": 7}
    summary = json.loads(json.dumps(bench.as_json()))["summary"]
    warm = next(row for row in summary if (row["method"], row["temperature"]) == ("auto", 0.8))
    assert (warm["accepted_lengths"], warm["steps_by_shape"]) == ([3], {"line": 3, "none": 7})


def test_the_wall_is_bandwidth_over_bytes() -> None:
    bench = replace(synthetic_bench(), bytes_per_token=50_000_000, bandwidth_bytes_per_second=10e9)
    assert bench.wall == 200.0
    assert replace(bench, bandwidth_bytes_per_second=None).wall is None


def test_json_has_the_summary_first() -> None:
    bench = without(synthetic_bench(), "self", "maths")
    written = json.loads(json.dumps(bench.as_json()))
    assert list(written)[:2] == ["schema", "summary"]
    assert len(written["summary"]) == len(METHODS) * len(bench.temperatures)
    row = next(
        row for row in written["summary"] if row["method"] == "self" and row["temperature"] == 0.0
    )
    assert row["speedup"]["maths"] is None
    assert row["speedup"]["chat"]["median"] == pytest.approx(0.61)
    assert row["mean_speedup"] is None
    assert row["acceptance"] == bench.acceptance("self", 0.0)
