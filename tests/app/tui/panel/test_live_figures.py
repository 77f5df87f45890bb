"""Figures of an answer as the screen shows them: the rate, the last seconds, and other models."""

from dataclasses import replace

import pytest

from app.chat.conversation import Conversation
from app.engine.answer import Answer, Stage
from app.engine.metrics import SessionSpeedup
from app.engine.reply import Request
from app.engine.status import Loaded
from app.tui.store import Live
from app.tui.store_writer import LiveFigures
from decoding.sampling.distribution import SamplingSettings
from decoding.telemetry import DrafterStatistics
from models.reference import Reference
from tests.fixtures.metrics import LIVE


def answered(tokens: int, accepted: int = 0, seconds: float = 9.4) -> Answer:
    answer = Answer(Request(Conversation(), SamplingSettings(), 10))
    answer.stage = Stage.ANSWERING
    give(answer, tokens, accepted, seconds)
    return answer


def give(answer: Answer, tokens: int, accepted: int = 0, seconds: float = 9.4) -> None:
    by_drafter = {"lookup": DrafterStatistics(1, accepted, accepted, 0.0)}
    answer.metrics = replace(
        LIVE, completion_tokens=tokens, by_drafter=by_drafter, decode_seconds=seconds
    )


LOADED = Loaded(Reference("demo", LIVE.model.path), LIVE.model, 8192, (), "", (), 1.0, None)


def test_until_the_engine_publishes_others_the_last_ones_are_returned() -> None:
    figures, answer = LiveFigures(), answered(5)
    first = figures.of(answer, LOADED)
    assert first.metrics is answer.metrics
    assert figures.of(answer, LOADED) == first
    give(answer, 6)
    assert figures.of(answer, LOADED).metrics is answer.metrics is not first.metrics


def test_in_mid_answer_the_rate_is_that_of_which_the_comparison_is() -> None:
    """Not of the last seconds: 12 tok/s stood beside 16 plain and "even with plain"."""
    figures, answer = LiveFigures(), answered(0, seconds=0.0)
    live = figures.of(answer, LOADED)
    for second in range(1, 9):
        tokens = 10 * second if second < 6 else 50 + 20 * (second - 5)
        give(answer, tokens, second, float(second))
        live = figures.of(answer, LOADED)
        assert (live.rate, live.comparison) == (LIVE.decode_tokens_per_second, LIVE.comparison)
    assert [round(second.rate) for second in live.minute] == [8, *[10] * 4, *[20] * 3]
    assert {second.drafter for second in live.minute} == {"lookup"}
    answer.finish()
    live = figures.of(answer, LOADED)
    assert live.rate == LIVE.decode_tokens_per_second
    assert figures.of(answer, LOADED) == live


def test_a_step_of_several_seconds_is_as_many_and_a_minute_is_kept() -> None:
    figures, answer = LiveFigures(), answered(0, seconds=0.0)
    figures.of(answer, LOADED)
    give(answer, 6, 0, 3.0)
    live = figures.of(answer, LOADED)
    assert [second.rate for second in live.minute] == [pytest.approx(6 / 3.2)] * 3
    for second in range(4, 100):
        give(answer, second, 0, float(second))
        live = figures.of(answer, LOADED)
    assert len(live.minute) == 60
    assert {second.drafter for second in live.minute} == {""}


def test_figures_of_another_model_are_left_out() -> None:
    figures, answer = LiveFigures(), answered(5)
    session = SessionSpeedup(answers=3)
    figures.of(answer, LOADED)
    other = replace(LOADED, info=replace(LIVE.model, threads=LIVE.model.threads + 1))
    assert figures.of(answer, other, session) == Live(session=session.comparison, answers=3)
    assert figures.of(answer, None) == Live()
    assert figures.of(None, LOADED) == Live()


def test_the_plain_rate_is_kept_until_a_new_answer_has_its_own() -> None:
    figures, answer = LiveFigures(), answered(5)
    figures.of(answer, LOADED)
    waiting = Answer(Request(Conversation(), SamplingSettings(), 10))
    live = figures.of(waiting, LOADED)
    assert (live.metrics, live.plain) == (None, LIVE.plain_tokens_per_second)
