"""`specchat bench` from end to end, on a small random model."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.bench.methods import Method, Methods, Outcome, methods
from app.bench.runner import round_seconds, slow_suite
from app.bench.suites import SUITES, Suite, Task, tasks
from backends.base import ModelError, UsageError
from tests.app.conftest import Specchat

KINDS = ["chat", "code", "copy", "summary", "maths", "document"]
SMALL = Suite("quick", 1, 1, 8, 300.0, temperatures=(0.0,))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of one prompt of each kind, of which the first words are read."""
    monkeypatch.setitem(SUITES, "quick", SMALL)
    monkeypatch.setattr("app.bench.runner.tasks", _begun)


def _begun(suite: Suite) -> list[Task]:
    return [replace(task, turns=(task.turns[0][:48],)) for task in tasks(suite)]


def test_a_suite_takes_the_first_prompts_of_six_kinds() -> None:
    assert [task.kind for task in tasks(SUITES["quick"])] == [*KINDS, *KINDS]
    assert len(tasks(SUITES["full"])) == 4 * len(KINDS)


@pytest.mark.slow
@pytest.mark.usefixtures("small", "llamacpp")
def test_every_method(specchat: Specchat, tiny_llama: Callable[..., Path], tmp_path: Path) -> None:
    json_file, html_file = tmp_path / "bench.json", tmp_path / "bench.html"
    options = ("--model", str(tiny_llama()), "--draft", "self:q8_0")
    ended = specchat("bench", *options, "--json", str(json_file), "--html", str(html_file))
    assert ended.returncode == 0, ended.stderr
    found = json.loads(json_file.read_text())
    expected = ["off", "lookup", "self", "self:q8_0", "auto", "llama-cpp-python lookup"]
    assert found["methods"] == expected
    assert found["kinds"] == KINDS
    assert len(found["runs"]) == len(found["methods"]) * len(KINDS)
    for run in found["runs"]:
        assert 0 < run["tokens"] <= SMALL.max_tokens
        assert run["seconds"] > 0
        if run["temperature"] == 0 and not run["method"].startswith("llama-cpp"):
            assert run["same_tokens"], run
    plain = [row for row in found["summary"] if row["method"] == "off"]
    assert all(row["mean_speedup"] == 1.0 for row in plain)
    for name in found["methods"]:
        assert name in ended.stdout
        assert name in html_file.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp", "small")
def test_a_model_that_streams(
    specchat: Specchat, demo_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = round(1.4 * demo_file.stat().st_size)
    monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: free)
    monkeypatch.setattr("app.loading.placement._LEAST_RESERVED", 1_000_000)
    file = tmp_path / "bench.json"
    common = ("bench", "--draft", "ngram", "--ctx", "1024", "--json", str(file))
    ended = specchat(*common, "--stream", "on")
    assert ended.returncode == 0, ended.stderr
    assert "a round takes at most about" in ended.stderr
    found = json.loads(file.read_text())
    assert found["methods"] == ["off", "lookup", "ngram"]
    assert found["max_tokens"] <= SMALL.max_tokens
    assert 0 < found["streamed_bytes_per_token"] < found["bytes_per_token"]
    assert any("other engines were left out" in note for note in found["notes"])


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_prompts_that_do_not_fit_are_left_out_and_named(
    specchat: Specchat, tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUITES, "quick", SMALL)
    model = str(tiny_llama())
    ended = specchat("bench", "--model", model, "--ctx", "400", "--draft", "lookup")
    assert ended.returncode == 0, ended.stderr
    assert "of summary 1 was left out: a context of" in " ".join(ended.stdout.split())
    none = specchat("bench", "--model", model, "--ctx", "20")
    assert none.returncode == 2
    assert "no prompt fits the context" in none.stderr


def test_an_unknown_suite_is_a_usage_error(specchat: Specchat) -> None:
    ended = specchat("bench", "--suite", "endless")
    assert (ended.returncode, "full, mt-bench, quick" in ended.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp", "small")
def test_a_method_that_fails_is_left_out_and_the_rest_goes_on(
    specchat: Specchat,
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def fail(*_: object) -> Outcome:
        raise ModelError("it broke")

    def one_fails(*arguments: Any, **options: Any) -> Methods:
        made = methods(*arguments, **options)
        made.chosen[1:] = [Method("failing", fail, bool)]
        return made

    monkeypatch.setattr("app.cli.commands.bench.methods", one_fails)
    file = tmp_path / "bench.json"
    ended = specchat("bench", "--model", str(tiny_llama()), "--json", str(file))
    assert ended.returncode == 0, ended.stderr
    assert json.loads(file.read_text())["methods"] == ["off"]
    assert "failing was left out: it broke" in ended.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp", "small")
def test_time_that_is_up_ends_it_after_whole_rounds(
    specchat: Specchat,
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(SUITES, "quick", Suite("quick", 1, 9, 4, 0.0, temperatures=(0.0,)))
    file = tmp_path / "bench.json"
    assert specchat("bench", "--model", str(tiny_llama()), "--json", str(file)).returncode == 0
    found = json.loads(file.read_text())
    assert found["rounds"] == 1
    assert any("time was up after 1 of 9 rounds" in note for note in found["notes"])


QUICK = SUITES["quick"]


@pytest.mark.parametrize("plain_seconds", [0.02, 0.1, 0.3, 0.6])
def test_a_round_fits_into_the_time_of_the_suite(plain_seconds: float) -> None:
    suite = slow_suite(QUICK, plain_seconds, 3)
    assert round_seconds(suite, plain_seconds, 3) <= QUICK.seconds
    assert {task.kind for task in tasks(suite)} == {task.kind for task in tasks(QUICK)}


def test_the_slower_the_model_the_shorter_its_suite() -> None:
    times = (0.02, 0.1, 0.3, 0.6)
    sizes = [round_seconds(slow_suite(QUICK, one, 3), 1.0, 3) for one in times]
    assert sizes == sorted(sizes, reverse=True)
    assert slow_suite(QUICK, 0.001, 3).max_tokens == QUICK.max_tokens


def test_one_that_would_take_hours_is_refused() -> None:
    assert slow_suite(QUICK, 2.0, 3).max_tokens == 32
    with pytest.raises(UsageError, match=r"about 4\.\d hours") as refused:
        slow_suite(QUICK, 26.0, 3)
    assert "a token takes 26 s" in refused.value.why
