"""Costs are measured in idle time where the next start would: the user first, and nothing lost."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import NoReturn

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.chat.conversation import Conversation
from app.engine import idle_tasks as module
from app.engine.engine import Engine
from app.engine.idle_tasks import Calibrating
from app.engine.reply import Request
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import OutOfMemoryError
from backends.chat.message import Message
from decoding.estimation import calibration
from decoding.estimation.cost import CostModel, Held, Measured
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.heard import hurry

LONG_IDLE = 3600.0
Open = Callable[..., Session]


@pytest.fixture
def opened(tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a session whose costs were measured: opened(draft)."""
    hurry(monkeypatch)
    with ExitStack() as stack:

        def open_one(draft: str = "lookup") -> Session:
            options = SessionOptions(str(tiny_llama(seed=3)), draft=draft, threads=1)
            session = open_session(options, Paths.of_this_user(), lambda _: None)
            return stack.enter_context(closing(session))

        yield open_one


def costs_file(session: Session) -> Path:
    assert session.drafting.costs_file is not None
    return session.drafting.costs_file


def test_costs_that_have_drifted_are_measured_again_and_kept(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened()
    file, work = costs_file(session), Calibrating(session, lambda: "")
    with session.context.use() as context:
        context.forward([5, 6, 7], 0)
    monkeypatch.setattr(CostModel, "has_drifted", True)
    session.drafting.remember()
    assert not file.exists()
    work.changed()
    assert work.due_in(0.0) == pytest.approx(module.MEASURE_AFTER_SECONDS)
    assert (work.due_in(LONG_IDLE) or 0.0) < 0.0
    work.run(lambda: True)
    assert file.exists()
    assert session.context.facts.tokens == [5, 6, 7]
    session.drafting.remember()
    work.changed()
    assert file.exists(), "replies differ from what was measured before, not from this"
    assert work.due_in(LONG_IDLE) is None


def test_what_is_sure_is_measured_no_more(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened()
    steady = Measured({1: 0.01, 16: 0.05})
    monkeypatch.setattr("app.learned.calibrations.calibrate", lambda *_, **__: steady)
    file = costs_file(session)
    file.unlink()
    Calibrating(session, lambda: "").run(lambda: True)
    session.drafting = replace(session.drafting, costs_file=file)  # as at the next start
    before, work = file.read_bytes(), Calibrating(session, lambda: "")
    work.run(lambda: True)
    assert file.read_bytes() == before
    assert work.due_in(LONG_IDLE) is None
    work.changed()
    assert work.due_in(LONG_IDLE) is not None


def test_the_user_comes_first_and_it_begins_again(opened: Open) -> None:
    session = opened()
    file, work = costs_file(session), Calibrating(session, lambda: "")
    file.unlink()
    left = iter(range(1))
    work.run(lambda: next(left, None) is not None)
    assert not file.exists()
    assert (work.due_in(LONG_IDLE) or 0.0) < 0.0
    work.run(lambda: True)
    assert file.exists()


def test_what_a_chat_holds_is_measured_in_it_and_known_at_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.learned.calibrations.LEAST_HELD", 8)
    monkeypatch.setattr(calibration, "AGREEING", 1e9)
    session = opened()
    costs_file(session)
    work, chat = Calibrating(session, lambda: ""), [5, 6, 7] * 4
    with session.context.use() as context:
        context.forward(chat, 0)
    left = iter(range(9))
    controller = session.drafting.controller
    assert controller is not None
    learned = list[Held]()
    monkeypatch.setattr(controller.costs, "learn_held", learned.append)
    work.run(lambda: next(left, None) is not None)
    assert session.context.facts.tokens == chat
    assert not learned
    assert work.due_in(LONG_IDLE) is not None
    work.run(lambda: True)
    assert session.context.facts.tokens == chat
    assert [list(held) for held in learned] == [[len(chat)]]
    assert {1, 2, 4} <= learned[0][len(chat)].keys()


def test_nothing_is_measured_while_it_is_not_allowed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, reasons = opened(), ["on battery"]
    file, work = costs_file(session), Calibrating(session, lambda: reasons[-1])
    file.unlink()
    work.run(lambda: True)
    assert not file.exists()
    assert 0.0 < (work.due_in(LONG_IDLE) or 0.0) <= module.LOOK_AGAIN_SECONDS
    monkeypatch.setattr(module, "LOOK_AGAIN_SECONDS", -LONG_IDLE)
    work.run(lambda: True)
    reasons.append("")
    assert (work.due_in(LONG_IDLE) or 0.0) < 0.0
    work.run(lambda: True)
    assert file.exists()


def test_memory_that_runs_short_is_no_error(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object) -> NoReturn:
        raise OutOfMemoryError("memory is short", "others took it")

    session = opened()
    file, work = costs_file(session), Calibrating(session, lambda: "")
    file.unlink()
    monkeypatch.setattr(TargetContext, "second", short)
    work.run(lambda: True)
    assert not file.exists()
    assert work.due_in(LONG_IDLE) is None


def test_what_is_not_needed_or_takes_long_is_left_out(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Calibrating(opened("off"), lambda: "").due_in(LONG_IDLE) is None
    slow = Calibrating(opened(), lambda: "")
    assert slow.due_in(LONG_IDLE) is not None
    monkeypatch.setattr(CostModel, "seconds", lambda *_: 2 * module._SLOWEST_STOPPED)
    assert slow.due_in(LONG_IDLE) is None


def test_a_request_is_answered_between_two_passes(
    tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(module, "MEASURE_AFTER_SECONDS", 0.0)
    begun, gate, rounds = Event(), Event(), list[int]()
    calibrate = calibration.calibrate

    def gated(*given: object, is_wanted: Callable[[], bool], **more: object) -> Measured:
        rounds.append(0)

        def asked() -> bool:
            rounds[-1] += 1
            begun.set()
            assert gate.wait(60)
            return is_wanted()

        return calibrate(*given, is_wanted=asked, **more)  # pyright: ignore[reportArgumentType]

    options = SessionOptions(str(tiny_llama(seed=3)), draft="lookup", threads=1)
    engine = Engine(options, Paths.of_this_user())
    engine.start()
    with ExitStack() as stack:
        stack.callback(engine.close, 30.0)
        engine.count("").result(60)
        active = engine._active
        assert active is not None
        file = costs_file(active.session)
        file.unlink()
        monkeypatch.setattr("app.learned.calibrations.calibrate", gated)
        active.calibrating.changed()
        engine.expect(None)
        assert begun.wait(60)
        asked = Request(
            Conversation("", [Message("user", "hi")]), SamplingSettings(temperature=0.0), 8
        )
        answer = engine.ask(asked)
        gate.set()
        assert answer.wait(60)
        assert answer.error is None
        assert rounds[0] == 1
        while not file.exists():
            Event().wait(0.001)
        assert len(rounds) > 1
