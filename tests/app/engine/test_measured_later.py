"""A large model that is new here is ready before it is measured, and nobody waits for that."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.status import Phase
from backends.base import ModelError, PassStoppedError
from decoding.estimation.cost import Measured
from tests.app.engine.conftest import Start
from tests.fixtures.costs import measured_as
from tests.fixtures.sessions import GREEDY, conversation

pytestmark = pytest.mark.usefixtures("llamacpp")

STEADY = Measured({1: 0.02, 16: 0.1})
NOT_YET = 3600.0


class Measuring:
    """Stands in for a measurement; it only ends once it is no longer wanted, if it is endless."""

    def __init__(self) -> None:
        self.is_endless, self.error = False, ""
        self.begun, self.stopped = Event(), 0

    def __call__(self, *_: object, is_wanted: Callable[[], bool], **__: object) -> Measured:
        self.begun.set()
        if self.error:
            raise ModelError(self.error)
        while self.is_endless:
            if not is_wanted():
                self.stopped += 1
                self.is_endless = False
                raise PassStoppedError
            Event().wait(0.001)
        return STEADY


@pytest.fixture
def measuring(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measuring]:
    found = Measuring()
    monkeypatch.setattr("app.engine.session_opening._LARGE_BYTES", 0)
    monkeypatch.setattr("app.engine.idle_tasks._NEW_AFTER_SECONDS", NOT_YET)
    for _ in measured_as(found, home, monkeypatch):
        yield found


def drafters(engine: Engine) -> list[str]:
    """Those in use, once all that was asked for before is done."""
    return engine.between(lambda session: session.drafting.names).result(30)


def ask(engine: Engine) -> None:
    answer = engine.ask(Request(conversation("hi"), GREEDY, 4))
    assert answer.wait(30)
    assert answer.error is None
    assert len(answer.reply.token_ids) == 4


def test_the_first_answer_comes_before_the_measurement_and_the_next_one_after_it(
    start: Start, tiny_llama: Callable[..., Path], measuring: Measuring
) -> None:
    engine = start(tiny_llama(), "lookup")
    assert drafters(engine) == []
    assert engine.status.phase is Phase.READY
    assert engine.status.error is None
    assert not measuring.begun.is_set()
    ask(engine)
    assert drafters(engine) == ["lookup"]
    loaded = engine.status.loaded
    assert loaded is not None
    assert (loaded.drafters, loaded.missing) == (("lookup",), "")
    assert loaded.plain_rate == pytest.approx(50.0)


def test_it_is_measured_while_nobody_asks_and_gives_way_to_who_does(
    start: Start,
    tiny_llama: Callable[..., Path],
    measuring: Measuring,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.engine.idle_tasks._NEW_AFTER_SECONDS", 0.0)
    measuring.is_endless = True
    engine = start(tiny_llama(), "lookup")
    assert measuring.begun.wait(30)
    ask(engine)
    assert measuring.stopped == 1
    assert drafters(engine) == ["lookup"]


def test_a_model_that_was_measured_is_ready_with_its_drafters(
    start: Start, tiny_llama: Callable[..., Path], measuring: Measuring
) -> None:
    model = tiny_llama()
    first = start(model, "lookup")
    ask(first)
    assert drafters(first) == ["lookup"]
    measuring.begun.clear()
    assert drafters(start(model, "lookup")) == ["lookup"]
    assert not measuring.begun.is_set()


def test_a_measurement_that_fails_is_told_once_and_answers_go_on(
    start: Start, tiny_llama: Callable[..., Path], measuring: Measuring
) -> None:
    measuring.error = "the pass failed"
    engine = start(tiny_llama(), "lookup")
    ask(engine)
    assert drafters(engine) == []
    assert engine.status.error is not None
    assert "the pass failed" in engine.status.error.summary
    measuring.begun.clear()
    ask(engine)
    assert drafters(engine) == []
    assert not measuring.begun.is_set()
