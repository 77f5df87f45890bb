"""Figures in words: what was not measured, or says nothing, is left out."""

from dataclasses import replace

import pytest

from app.chat.conversation import Conversation
from app.engine.answer import Answer, Request, Stage
from app.engine.engine_status import where_it_runs
from app.engine.reply import Reply
from app.tui import wording
from app.tui.screens.race_screen import ending_of, verdict
from app.tui.status.live_figures import state_line
from decoding.events import FinishReason
from decoding.sampling.distribution import SamplingSettings
from decoding.shape import Shape
from decoding.telemetry import Statistics
from tests.app.tui.test_snapshots import LIVE
from tests.fixtures.scripted import ScriptedModel


def answered(tokens: int, rate: float) -> Answer:
    answer = Answer(Request(Conversation("", []), SamplingSettings(), 100))
    answer.stage = Stage.ANSWERING
    answer.begin(Reply(Statistics(0.0), token_ids=list(range(tokens))))
    answer.metrics = replace(LIVE, decode_tokens_per_second=rate)
    return answer


def test_a_speedup_that_was_not_measured_is_absent() -> None:
    unmeasured = replace(
        LIVE,
        speedup=None,
        plain_tokens_per_second=None,
        steps_by_shape={Shape.LINE: 9, Shape.NONE: 1},
    )
    assert "1.80× plain" in wording.ending(LIVE, FinishReason.STOP)
    assert wording.ending(unmeasured, FinishReason.STOP) == (
        "120 tokens · 61.3 tok/s · 72 % of drafted accepted · first after 0.2 s"
    )
    answer = answered(120, 61.3)
    answer.metrics = unmeasured
    assert state_line(answer, wording.state(unmeasured, None), 70.0) == (
        "70.0 tok/s · 72 % of drafted accepted · context 160/8,192 · drafting on (lookup, small)"
    )


def test_shapes_are_told_where_not_every_draft_was_a_line() -> None:
    ending = wording.ending(LIVE, FinishReason.STOP)
    assert ending.endswith(" · first after 0.2 s · steps: line 50 %, tree 30 %, none 20 %")
    paths = replace(LIVE, steps_by_shape={Shape.LINE: 0, Shape.PATHS: 199, Shape.NONE: 1})
    assert "steps: paths 100 %, none <1 %" in wording.ending(paths, FinishReason.STOP)


def test_a_race_of_few_tokens_tells_no_speed() -> None:
    short = verdict(answered(63, 10.0), answered(63, 30.0))
    assert short == "too short to tell the speed in this race · the same 63 tokens"
    assert verdict(answered(64, 10.0), answered(64, 30.0)).startswith("3.00× plain in this race")
    assert "×" not in verdict(answered(64, 10.0), answered(5, 30.0))


def test_a_race_has_one_speedup() -> None:
    """Of an answer beside the plain one, and not also by what a plain step was expected to take."""
    plain, drafted = answered(64, 10.0), answered(64, 30.0)
    assert drafted.metrics is not None
    assert drafted.metrics.speedup == 1.8
    assert verdict(plain, drafted).startswith("3.00× plain")
    assert ending_of(drafted) == (
        "120 tokens · 30.0 tok/s · 72 % of drafted accepted · first after 0.2 s"
        " · steps: line 50 %, tree 30 %, none 20 %"
    )


@pytest.mark.parametrize(
    ("backend", "device", "words"),
    [
        ("llamacpp", "CPU: some", "llama.cpp CPU, 2 threads"),
        ("llamacpp", "GPU: 12 layers", "llama.cpp GPU"),
        ("mlx", "CPU: some", "MLX CPU"),
        ("mlx", "GPU: Apple M4", "MLX GPU"),
    ],
)
def test_the_engine_that_runs_a_model_is_named(backend: str, device: str, words: str) -> None:
    info = replace(ScriptedModel([]).info, backend=backend, device=device, threads=2)
    assert where_it_runs(info) == words


def test_a_lossy_answer_says_so_wherever_speed_is_shown() -> None:
    lossy = replace(LIVE, lossy="lossy: ears 0.1")
    assert "accepted · lossy: ears 0.1 · first" in wording.ending(lossy, FinishReason.STOP)
    assert "lossy" not in wording.ending(LIVE, FinishReason.STOP)
    answer = answered(120, 61.3)
    answer.metrics = lossy
    assert "accepted · lossy: ears 0.1 · context" in state_line(answer, "drafting on", 70.0)
    drafted = answered(64, 30.0)
    drafted.metrics = replace(lossy, decode_tokens_per_second=30.0)
    assert verdict(answered(64, 10.0), drafted) == (
        "3.00× plain in this race · lossy: ears 0.1, so not the model's own distribution"
    )


def test_figures_of_a_continued_answer_say_that_they_are_of_its_end() -> None:
    for previous in ("120 tokens · 61.3 tok/s", ""):
        ending = wording.ending(LIVE, FinishReason.STOP, continued=previous)
        assert ending.startswith("the last 120 tokens · 61.3 tok/s · ")
    assert wording.ending(LIVE, FinishReason.STOP).startswith("120 tokens")


def test_what_goes_on_with_a_lossy_answer_is_lossy() -> None:
    previous = wording.ending(replace(LIVE, lossy="lossy: ears 0.1"), FinishReason.CANCELLED)
    same = wording.ending(
        replace(LIVE, lossy="lossy: ears 0.1"), FinishReason.STOP, continued=previous
    )
    assert same.count("lossy") == 1
    assert wording.lossy_part(wording.ending(LIVE, FinishReason.STOP, continued=previous)) == (
        "lossy: ears 0.1"
    )
    assert wording.lossy_part(wording.ending(LIVE, FinishReason.STOP)) == ""
