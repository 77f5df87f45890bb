"""The app and the server over one engine."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from threading import Event

import pytest

pytest.importorskip("uvicorn")

from app.engine.engine import Engine
from app.paths import Paths
from app.serve.server_options import ServerOptions
from app.serve.serving import serving
from app.settings.answering import Answering
from app.tui import app as tui
from app.tui.app import SpecchatApp
from backends.base import UsageError
from decoding.sampling.sampling_settings import SamplingSettings
from tests.app.tui.conftest import Chatting, start
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.served_engine import HI, posted

WORDS = [f"word{number} " for number in range(10)]
GREEDY = Answering(SamplingSettings(temperature=0.0), 100)


async def test_a_program_and_the_user_are_answered_in_turn(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate), (100, 30), reads_ahead=False) as chat:
        await chat.ready()
        with serving(ServerOptions("127.0.0.1", 0), GREEDY)(chat.app.engine) as address:
            asked = asyncio.create_task(asyncio.to_thread(posted, address, HI, "editor/2.0"))
            await chat.until(lambda: "answering editor" in chat.shown)
            await chat.say("hello")
            gate.set()
            answered = await asked
            await chat.idle()
            await chat.until(lambda: "answering" not in chat.shown)
            assert chat.texts == [("user", "hello"), ("assistant", "".join(WORDS))]
    assert answered["choices"][0]["message"]["content"] == "".join(WORDS)


async def test_a_question_that_waits_for_a_program_is_taken_back_at_once(
    chatting: Chatting,
) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate)
    async with chatting(model, (100, 30), reads_ahead=False) as chat:
        await chat.ready()
        with serving(ServerOptions("127.0.0.1", 0), GREEDY)(chat.app.engine) as address:
            asked = asyncio.create_task(asyncio.to_thread(posted, address, HI, "editor/2.0"))
            await chat.until(lambda: "answering editor" in chat.shown)
            await chat.say("hello")
            await chat.until(lambda: "waiting for editor" in chat.shown)
            assert "reading" not in chat.shown
            await chat.pilot.press("f5")
            await chat.until(lambda: "your question waits for editor" in chat.shown)
            await chat.pilot.press("escape")
            await chat.idle()  # though the gate is shut, and the program is still answered
            assert chat.view.dialogue.turns == []
            assert chat.prompt.text == "hello"
            assert "answering editor" in chat.shown
            gate.set()
            answered = await asked
            assert answered["choices"][0]["message"]["content"] == "".join(WORDS)
            passes = model.passes
            await asyncio.wrap_future(chat.app.engine.count(""))  # the turn it had is over
            assert model.passes == passes
            await chat.say("again")
            await chat.until(lambda: len(chat.texts) == 2 and chat.view.is_idle)
            assert chat.texts == [("user", "again"), ("assistant", "".join(WORDS))]


def test_the_address_is_told_in_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[SpecchatApp] = []

    def note(app: SpecchatApp) -> int:
        begun.append(app)
        return 7

    monkeypatch.setattr(tui, "_run", note)
    ended: list[str] = []

    @contextmanager
    def companion(engine: Engine) -> Generator[str, None, None]:
        yield "http://127.0.0.1:8377"
        ended.append("ended")

    assert tui.run(start(), Paths.of_this_user(), companion) == 7
    assert any("http://127.0.0.1:8377/v1" in notice for notice in begun[0]._notices)
    assert ended == ["ended"]


def test_a_server_that_cannot_listen_is_told_before_the_app_opens() -> None:
    options = ServerOptions("127.0.0.1", 0)
    with serving(options, GREEDY)(Engine(start().session, Paths.of_this_user())) as address:
        taken = ServerOptions("127.0.0.1", int(address.rpartition(":")[2]))
        with pytest.raises(UsageError, match="cannot listen"):
            tui.run(start(), Paths.of_this_user(), serving(taken, GREEDY))
