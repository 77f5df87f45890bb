"""The engine's thread: one request after another, stopped, failed, closed."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any, NoReturn

import pytest

from app.engine.answer import Answer, Stage
from app.engine.engine import Engine, LoadingStoppedError, OpenSession
from app.engine.metrics import ReplyMetrics
from app.engine.reply import Request
from app.engine.session import Session
from app.engine.status import Phase
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.prompt_cache import state_keeper
from app.prompt_cache.saved_states import SavedStates
from backends.base import ModelError, OutOfMemoryError, PassStoppedError, UsageError
from backends.base.model import pass_is_stopped
from decoding.events import FinishReason, Origin
from tests.app.engine.conftest import WORDS, Start
from tests.fixtures.scripted import Narrow, ScriptedModel, opened
from tests.fixtures.sessions import GREEDY, conversation


class ToldGate(Event):
    """A gate that tells when a pass waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.reached.set()
        return super().wait(timeout)


def request(max_tokens: int = 1000, partial: str = "") -> Request:
    return Request(conversation("hi"), GREEDY, max_tokens, partial)


def text_of(answer: Answer) -> str:
    assert answer.wait(30)
    return answer.text


def test_an_answer_comes_whole_with_where_its_tokens_came_from(start: Start) -> None:
    answer = start(ScriptedModel(WORDS)).ask(request())
    assert text_of(answer) == "".join(WORDS)
    assert answer.finish_reason is FinishReason.STOP
    assert answer.reply.provenance == [Origin.MODEL] * (len(WORDS) + 1)
    assert answer.reply.token_ends[-1] == len(answer.text)
    assert answer.metrics is not None
    assert answer.metrics.completion_tokens == len(WORDS) + 1


def test_a_bias_of_a_token_that_does_not_exist_is_told_and_the_next_answer_comes(
    start: Start,
) -> None:
    engine = start(ScriptedModel(WORDS))
    biased = replace(GREEDY, logit_bias=((1_000_000, 1.0),))
    answer = engine.ask(replace(request(), settings=biased))
    assert text_of(answer) == ""
    assert isinstance(answer.error, UsageError)
    banned = replace(GREEDY, logit_bias=((2, -100.0),))  # the first word: no other has a score
    assert text_of(engine.ask(replace(request(), settings=banned, max_tokens=1))) != WORDS[0]


def test_a_ranking_that_nobody_waits_for_any_more_is_no_error(start: Start) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate)
    engine = start(model)
    answer = engine.ask(request())
    assert engine.rank().cancel()
    gate.set()
    text_of(answer)
    text_of(engine.ask(request()))
    assert engine.status.error is None


def test_requests_wait_for_each_other(start: Start) -> None:
    model = ScriptedModel(WORDS)
    engine = start(model)
    answers = [engine.ask(request()) for _ in range(5)]
    assert [text_of(answer) for answer in answers] == ["".join(WORDS)] * 5
    assert model.most_at_once == 1


def test_stopping_keeps_what_was_said_and_lets_the_next_one_begin(start: Start) -> None:
    gate = Event()
    model = ScriptedModel(WORDS * 100, gate=gate)
    engine = start(model)
    first = engine.ask(request())
    second = engine.ask(request(max_tokens=3))
    first.stop()
    gate.set()
    assert text_of(second) == "".join(WORDS[:3])
    assert first.is_done
    assert first.finish_reason in (None, FinishReason.CANCELLED)
    assert model.most_at_once == 1


def test_figures_are_published_when_reading_and_answering_begin_then_each_second_and_at_the_end(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engine.engine.FIGURES_SECONDS", 3600.0)
    engine, answer, seen = start(ScriptedModel(WORDS)), Answer(request()), list[object]()
    answer.listen(lambda: seen.append(answer.metrics))
    engine.begin(answer)
    assert text_of(answer) == "".join(WORDS)
    steps = [one.steps if isinstance(one, ReplyMetrics) else None for one in seen]
    assert list(dict.fromkeys(steps)) == [None, 0, 1, answer.reply.statistics.steps]


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_answer_stopped_before_its_turn_ends_at_once_and_is_never_answered(
    start: Start, is_begun: bool
) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate)
    engine = start(model)
    first, waiting = engine.ask(request()), Answer(request())
    ends: list[Stage] = []
    waiting.listen(lambda: ends.append(waiting.stage))
    if is_begun:
        engine.begin(waiting)
    waiting.stop()
    assert waiting.is_done  # though the gate is shut
    if not is_begun:
        engine.begin(waiting)
    gate.set()
    assert text_of(first) == "".join(WORDS)
    text_of(engine.ask(request(max_tokens=1)))  # the turn of the stopped one was before
    waiting.stop()
    assert ends == [Stage.DONE]
    assert (waiting.text, waiting.reply.statistics.prompt_tokens) == ("", 0)
    assert waiting.error is None
    assert not engine.is_answering


def test_an_answer_whose_turn_has_come_is_finished_by_the_engine_alone(start: Start) -> None:
    gate = ToldGate()
    engine = start(ScriptedModel(WORDS, gate=gate))
    answer = engine.ask(request())
    assert gate.reached.wait(30)
    ends: list[bool] = []
    answer.listen(lambda: ends.append(answer.is_done))
    answer.stop()
    assert not answer.is_done  # its pass waits for the gate
    gate.set()
    assert answer.wait(30)
    text_of(engine.ask(request(max_tokens=1)))
    assert ends.count(True) == 1


def test_an_engine_that_fails_keeps_what_was_said(start: Start) -> None:
    answer = start(ScriptedModel(WORDS, fails_at=5)).ask(request())
    assert text_of(answer) == "".join(WORDS[:5])
    assert isinstance(answer.error, ModelError)
    assert len(answer.token_ids) == 5


def test_each_model_that_cannot_be_loaded_is_told_by_its_own_error_and_answers_fail() -> None:
    def fails(options: SessionOptions, *_: object) -> NoReturn:
        raise ModelError(f"no model {options.model}")

    engine = Engine(SessionOptions("first"), Paths.of_this_user(), fails)
    engine.start()
    for model in ("first", "second"):
        answer = engine.ask(request())
        assert answer.wait(30)
        assert answer.error is engine.status.error
        assert str(engine.status.error) == f"no model {model}"
        assert engine.status.phase is Phase.FAILED
        assert engine.options.model == "first"
        engine.load("second")
    assert engine.close(10.0)


def test_where_no_model_can_be_loaded_any_more_that_is_told() -> None:
    """Neither another one for an answer, nor that in use after it."""
    opens: list[OpenSession] = [opened(ScriptedModel(WORDS))]

    def open_next(options: SessionOptions, paths: Paths, notify: Callable[[str], None]) -> Session:
        if not opens:
            raise ModelError(f"no model {options.model}")
        return opens.pop()(options, paths, notify)

    engine = Engine(SessionOptions("own"), Paths.of_this_user(), open_next)
    engine.start()
    answer = engine.ask(replace(request(), model="other"))
    assert answer.wait(30)
    assert engine.status.phase is Phase.FAILED
    assert engine.status.error is answer.error
    assert engine.close(10.0)


def never_ends(_options: SessionOptions, _paths: Paths, notify: Callable[[str], None]) -> NoReturn:
    """Opens a model that is checked for ever, as long as nobody stops it."""
    while True:
        notify("checking a file")


def runs_long(_options: SessionOptions, _paths: Paths, notify: Callable[[str], None]) -> NoReturn:
    """Opens a model by a pass that takes for ever, as long as nobody stops it."""
    notify("checking a file")
    while not pass_is_stopped():
        Event().wait(0.001)
    raise PassStoppedError


@pytest.mark.slow
@pytest.mark.parametrize("opens", [never_ends, runs_long])
@pytest.mark.parametrize("way", ["stop_loading", "close"])
def test_a_model_that_is_being_loaded_is_given_up(way: str, opens: OpenSession) -> None:
    opening = [opens, opened(ScriptedModel(WORDS))]

    def open_next(options: SessionOptions, paths: Paths, notify: Callable[[str], None]) -> Session:
        return opening.pop(0)(options, paths, notify)

    engine = Engine(SessionOptions(), Paths.of_this_user(), open_next)
    engine.start()
    while engine.status.text != "checking a file":
        Event().wait(0.01)
    if way == "close":
        assert engine.close(10.0)
        return
    engine.stop_loading()
    assert engine.ask(request()).wait(30)
    assert engine.status.phase is Phase.FAILED
    assert isinstance(engine.status.error, LoadingStoppedError)
    engine.load("another")
    assert text_of(engine.ask(request(max_tokens=1))) == WORDS[0]
    assert engine.close(10.0)


def test_closing_stops_what_is_at_work(start: Start) -> None:
    engine = start(ScriptedModel(WORDS * 200, rate=100.0))
    answer = engine.ask(request(max_tokens=100_000))
    while answer.stage is not Stage.ANSWERING:
        assert not answer.wait(0.01)
    assert engine.close(5.0)
    assert answer.finish_reason is FinishReason.CANCELLED
    assert engine.status.phase is Phase.CLOSED


def drafters(engine: Engine) -> tuple[str, ...]:
    loaded = engine.status.loaded
    assert loaded is not None
    return loaded.drafters


@pytest.mark.slow
@pytest.mark.parametrize("has_memory", [True, False])
def test_a_drafter_that_has_to_be_measured_has_a_context_for_it_or_waits_for_the_end(
    start: Start, monkeypatch: pytest.MonkeyPatch, has_memory: bool
) -> None:
    monkeypatch.setattr("app.engine.engine._LOOK_SECONDS", 0.0)
    shutil.rmtree(Paths.of_this_user().calibrations, ignore_errors=True)
    kind = ScriptedModel if has_memory else Narrow
    engine = start(kind(WORDS * 1000, rate=200.0, n_ctx=50_000))
    answer = engine.ask(request(max_tokens=40_000))
    while answer.stage is not Stage.ANSWERING:
        assert not answer.wait(0.01)
    engine.set_draft("lookup")
    if has_memory:
        while not drafters(engine):
            assert not answer.wait(0.01)
    else:
        while "after this answer" not in engine.status.text:
            assert not answer.wait(0.01)
        engine.set_draft("off")
        while engine.status.text:
            assert not answer.wait(0.01)
        engine.set_draft("lookup")
    assert not answer.wait(0.1)
    answer.stop()
    said = text_of(answer)
    assert answer.error is None
    assert said == "".join(WORDS * 1000)[: len(said)]
    assert len(said) > 50
    assert text_of(engine.ask(request(max_tokens=3))) == "".join(WORDS[:3])
    assert drafters(engine) == ("lookup",)
    assert engine.status.error is None


@pytest.mark.parametrize("wrong", ["self:skip=99", "self:experts=2", "nobody-knows-this"])
def test_a_drafter_that_cannot_be_had_leaves_the_answer_and_the_drafters_as_they_are(
    start: Start, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr("app.engine.engine._LOOK_SECONDS", 0.0)
    gate, held = Event(), Event()
    gate.set()
    engine = start(ScriptedModel(WORDS, gate=gate))
    engine.set_draft("lookup")

    def hold() -> None:
        if answer.stage is Stage.ANSWERING and not held.is_set():
            gate.clear()
            held.set()

    answer = Answer(request())
    answer.listen(hold)
    engine.begin(answer)
    assert held.wait(30)
    engine.set_draft(wrong)
    gate.set()
    assert text_of(answer) == "".join(WORDS)
    assert answer.error is None
    while engine.status.error is None:
        Event().wait(0.01)
    assert isinstance(engine.status.error, UsageError)
    assert engine.draft == "lookup"
    assert text_of(engine.ask(request())) == "".join(WORDS)
    assert drafters(engine) == ("lookup",)


def saved() -> int:
    """How many prompt caches lie on the disk."""
    return len(list(Paths.of_this_user().saved_states.glob("*.state")))


def test_closing_in_mid_answer_keeps_the_prompt_cache_for_the_next_start(start: Start) -> None:
    model = ScriptedModel(WORDS * 200, rate=100.0)
    engine = start(model)
    answer = engine.ask(request(max_tokens=100_000, partial="so far " * 20))
    while answer.stage is not Stage.ANSWERING:
        assert not answer.wait(0.01)
    assert engine.close(5.0)
    assert saved() == 1
    again = start(model).ask(request(max_tokens=3, partial="so far " * 20))
    assert text_of(again) == "".join(WORDS[:3])
    assert again.metrics is not None
    assert again.metrics.cached_prompt_tokens == again.metrics.prompt_tokens - 1 > 100


def test_the_prompt_cache_is_kept_when_nothing_is_asked_for_a_while(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, save = Event(), SavedStates.save

    def tell(states: SavedStates, *arguments: Any) -> bool:
        is_done = save(states, *arguments)
        kept.set()
        return is_done

    monkeypatch.setattr(SavedStates, "save", tell)
    monkeypatch.setattr(state_keeper, "_IDLE_SECONDS", 0.0)
    assert text_of(start(ScriptedModel(WORDS)).ask(request(partial="so far " * 20)))
    assert kept.wait(30)
    assert saved() == 1


def test_another_context_size_keeps_the_model(start: Start) -> None:
    engine = start(ScriptedModel(WORDS))
    engine.set_context(2048)
    assert text_of(engine.ask(request())) == "".join(WORDS)
    assert engine.options.ctx == 2048
    assert engine.status.error is None


def refuses_99(options: SessionOptions, paths: Paths, notify: Callable[[str], None]) -> Session:
    if options.ctx == 99:
        raise OutOfMemoryError("99 is no size")
    return opened(ScriptedModel(WORDS))(options, paths, notify)


@pytest.mark.parametrize(("first", "then"), [(4096, 99), (99, 4096)])
def test_a_context_size_that_cannot_be_had_leaves_the_old_one_and_another_loads_what_failed(
    first: int, then: int
) -> None:
    engine = Engine(SessionOptions(draft="off", ctx=first), Paths.of_this_user(), refuses_99)
    engine.start()
    try:
        engine.set_context(then)
        assert text_of(engine.ask(request())) == "".join(WORDS)
        assert engine.options.ctx == 4096
        assert isinstance(engine.status.error, OutOfMemoryError) == (then == 99)
        assert engine.status.phase is Phase.READY
    finally:
        assert engine.close(30)


def test_plain_replies_tell_the_speed_of_the_model(start: Start) -> None:
    engine = start(ScriptedModel([*WORDS, *(f"more{number} " for number in range(40))]))
    assert text_of(engine.ask(request()))
    loaded = engine.status.loaded
    assert loaded is not None
    assert loaded.plain_rate is not None
