"""Snapshots of an answer: when they are taken, the last seconds, and other models."""

from dataclasses import replace

from app.chat.conversation import Conversation
from app.engine.answer import Answer, Request, Stage
from app.engine.metrics import SessionSpeedup
from app.engine.status import Loaded
from app.tui.store import Live
from app.tui.store_writer import LiveClock
from decoding.sampling.distribution import SamplingSettings
from decoding.telemetry import DrafterStatistics
from models.reference import Reference
from tests.fixtures.metrics import LIVE


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def answered(tokens: int, accepted: int = 0) -> Answer:
    answer = Answer(Request(Conversation(), SamplingSettings(), 10))
    answer.stage = Stage.ANSWERING
    give(answer, tokens, accepted)
    return answer


def give(answer: Answer, tokens: int, accepted: int = 0) -> None:
    by_drafter = {"lookup": DrafterStatistics(1, accepted, accepted, 0.0)}
    answer.metrics = replace(LIVE, completion_tokens=tokens, by_drafter=by_drafter)


LOADED = Loaded(Reference("demo", LIVE.model.path), LIVE.model, 8192, (), "", (), 1.0, None)


def test_between_two_snapshots_the_last_one_is_returned() -> None:
    clock = Clock()
    live_clock, answer = LiveClock(clock), answered(5)
    first = live_clock.tick(answer, LOADED)
    assert first.metrics is answer.metrics
    give(answer, 6)
    clock.now += 0.1
    assert live_clock.tick(answer, LOADED) is first
    clock.now += 1.0
    assert live_clock.tick(answer, LOADED).metrics is answer.metrics


def test_in_mid_answer_the_rate_is_that_of_which_the_comparison_is() -> None:
    """Not of the last seconds: 12 tok/s stood beside 16 plain and "even with plain"."""
    clock = Clock()
    live_clock, answer = LiveClock(clock), answered(0)
    live = live_clock.tick(answer, LOADED)
    for second in range(1, 9):
        clock.now += 1.0
        give(answer, 10 * second if second < 6 else 50 + 20 * (second - 5), second)
        live = live_clock.tick(answer, LOADED)
        assert (live.rate, live.comparison) == (LIVE.decode_tokens_per_second, LIVE.comparison)
    assert [round(second.rate) for second in live.minute] == [10] * 5 + [20] * 3
    assert {second.drafter for second in live.minute} == {"lookup"}
    answer.finish()
    live = live_clock.tick(answer, LOADED)
    assert (live.stage, live.rate) == (Stage.DONE, LIVE.decode_tokens_per_second)
    clock.now += 10.0
    assert live_clock.tick(answer, LOADED) is live


def test_seconds_without_accepted_tokens_have_no_drafter_and_a_minute_is_kept() -> None:
    clock = Clock()
    live_clock, answer = LiveClock(clock), answered(0)
    live = Live()
    for second in range(100):
        give(answer, second)
        live = live_clock.tick(answer, LOADED)
        clock.now += 1.0
    assert len(live.minute) == 60
    assert {second.drafter for second in live.minute} == {""}


def test_figures_of_another_model_are_left_out() -> None:
    live_clock, answer = LiveClock(Clock()), answered(5)
    session = SessionSpeedup(answers=3)
    live_clock.tick(answer, LOADED)
    other = replace(LOADED, info=replace(LIVE.model, threads=LIVE.model.threads + 1))
    assert live_clock.tick(answer, other, session) == Live(session=session.comparison, answers=3)
    assert live_clock.tick(answer, None) == Live()
    assert live_clock.tick(None, LOADED) == Live()


def test_the_plain_rate_is_kept_until_a_new_answer_has_its_own() -> None:
    clock = Clock()
    live_clock, answer = LiveClock(clock), answered(5)
    live_clock.tick(answer, LOADED)
    waiting = Answer(Request(Conversation(), SamplingSettings(), 10))
    live = live_clock.tick(waiting, LOADED)
    assert (live.metrics, live.stage, live.plain) == (
        None,
        Stage.QUEUED,
        LIVE.plain_tokens_per_second,
    )
