"""The table of a terminal."""

from dataclasses import replace

import pytest

from app.bench.results import Bench
from app.bench.wording import table
from tests.fixtures.benches import KINDS, METHODS, synthetic_bench

LEGEND = "! slower than plain in every round"


def row(text: str, method: str) -> list[str]:
    """The cells of a method at the first temperature."""
    return next(
        line.removeprefix(method).split() for line in text.splitlines() if line.startswith(method)
    )


def test_a_row_has_every_figure() -> None:
    cells = row(table(synthetic_bench()), "auto")
    assert cells == ["1.00", "1.12", "2.64", "1.41", "1.05", "1.88", "1.42", "106.7", "52", "%"]


def test_every_temperature_has_a_block_with_every_method() -> None:
    blocks = table(synthetic_bench()).split("\n\n")
    assert len(blocks) == 3
    for block, temperature in zip(blocks, ("0", "0.8"), strict=False):
        title, header, *rows = block.splitlines()
        assert title.startswith(f"Temperature {temperature}: speedup against plain decoding")
        assert header.split() == [*KINDS, "mean", "tok/s", "acceptance"]
        assert [line[:23].strip() for line in rows] == list(METHODS)


def test_digits_stand_below_each_other() -> None:
    _, _, *rows = table(synthetic_bench()).split("\n\n")[0].splitlines()
    for position, letter in enumerate(rows[0]):
        if letter == ".":
            assert {line[position] for line in rows} == {"."}


def test_what_is_slower_is_marked_and_explained() -> None:
    text = table(synthetic_bench())
    assert row(text, "self")[0] == "0.61!"
    assert row(text, "lookup")[1] == "1.08"
    assert text.count(LEGEND) == 1


def test_what_noise_explains_is_not_called_slower() -> None:
    bench = synthetic_bench()
    fast = replace(bench.select("off", "code", 0.0)[0], method="self", round=0, tokens=10_000)
    bench = replace(bench, runs=(*bench.runs, *(replace(fast, kind=kind) for kind in bench.kinds)))
    assert "!" not in row(table(bench), "self")[0]


def test_without_anything_slower_there_is_no_legend() -> None:
    assert "!" not in table(replace(synthetic_bench(("off", "auto")), temperatures=(0.0,)))


def test_missing_figures_are_dashes() -> None:
    bench = synthetic_bench()
    runs = (run for run in bench.runs if (run.method, run.kind) != ("lookup", "maths"))
    cells = row(table(replace(bench, runs=tuple(runs))), "lookup")
    assert cells == ["0.96!", "1.08", "2.31", "1.33", "-", "1.71", "-", "-", "51", "%"]
    assert row(table(replace(bench, runs=())), "auto") == ["-"] * 9


def test_a_long_name_is_written_in_full_within_the_columns() -> None:
    long = "smollm2-135m-instruct-q4_0-requantized-x"
    text = table(synthetic_bench((*METHODS, long)))
    assert long in text.splitlines()
    assert max(map(len, text.splitlines())) <= 92


def test_the_spread_is_the_furthest_round() -> None:
    text = table(replace(synthetic_bench(("off", "auto")), temperatures=(0.0,)))
    assert "rounds deviate by at most 9 % from their median (auto, document, temperature 0)" in text


def test_one_round_is_reported_first_and_has_no_spread() -> None:
    text = table(replace(synthetic_bench(), rounds=1))
    assert text.startswith("one round: ")
    assert "median" not in text


def test_the_wall_is_told_with_its_source() -> None:
    text = " ".join(table(synthetic_bench()).split())
    assert (
        "plain decoding reads 0.085 GB a token; memory gives 14.2 GB/s (measured: reading memory "
        "on 2 threads): at most 167.1 tok/s; plain ran at 80.0"
    ) in text


def test_what_is_read_from_disk_is_told() -> None:
    bench = replace(synthetic_bench(), streamed_bytes_per_token=40_000_000)
    assert "0.040 GB of them from disk; the disk's speed was not measured" in _flat(bench)
    told = _flat(replace(bench, disk_bytes_per_second=1e9))
    assert "the disk 1.00 GB/s: at most 25.0 tok/s" in told


def _flat(bench: Bench) -> str:
    return " ".join(table(bench).split())


def test_an_unknown_wall_is_said_to_be() -> None:
    bench = replace(synthetic_bench(), bandwidth_bytes_per_second=None, bandwidth_source=None)
    text = " ".join(table(bench).split())
    assert "memory bandwidth was not measured; plain ran at 80.0 tok/s" in text


def test_the_shapes_of_the_default_method_are_told() -> None:
    text = table(synthetic_bench())
    assert "steps of auto by shape: line 50 %, tree 7 %, none 43 %" in text.splitlines()
    assert "steps of lookup by shape" in table(synthetic_bench(("off", "lookup")))
    assert "by shape" not in table(synthetic_bench(("off", "llama-cpp-python lookup")))


@pytest.mark.parametrize("note", ["The document prompts were left out: the context is short."])
def test_notes_come_last(note: str) -> None:
    assert table(replace(synthetic_bench(), notes=("First.", note))).endswith(f"First.\n{note}")


def test_a_method_that_drafted_nothing_is_named() -> None:
    bench = synthetic_bench()
    idle = tuple(
        replace(run, drafted=0, accepted=0) if run.method == "self" else run for run in bench.runs
    )
    text = " ".join(table(replace(bench, runs=idle)).split())
    assert "drafted nothing at temperature 0.8, so the" in text
    assert "difference from plain is noise: self" in text
    assert "drafted nothing" not in table(bench)


def test_neither_one_round_nor_a_method_that_drafted_nothing_is_called_slower() -> None:
    """A bench stopped early said "slower than plain in every round", then that it was noise."""
    bench = synthetic_bench()
    first = tuple(run for run in bench.runs if run.round == 0)
    assert "!" not in table(replace(bench, runs=first, rounds=1))
    idle = tuple(
        replace(run, drafted=0, accepted=0) if run.method in ("self", "lookup") else run
        for run in bench.runs
    )
    bench = replace(bench, runs=idle, temperatures=(0.0,))
    assert row(table(bench), "self")[0] == "0.61"
    assert LEGEND in table(bench), "llama-cpp-python tells no steps, and may have drafted"
