"""The app and the server over one engine."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from app.engine.answer import Answer
from app.engine.engine import Engine
from app.paths import Paths
from app.serve.server_options import ServerOptions
from app.serve.serving import serving
from app.settings.answering import Answering
from app.settings.in_effect import ServedAt
from app.tui import app as tui
from app.tui.app import SpecchatApp
from backends.base import UsageError
from decoding.sampling.settings import SamplingSettings
from tests.app.tui.conftest import ALL, WORDS, Chat, Chatting, start
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.served_engine import HI, posted

GREEDY = Answering(SamplingSettings(temperature=0.0), 100)


async def asked_by_editor(served_at: ServedAt) -> Any:
    """What an editor gets that asks the server."""
    return await asyncio.to_thread(posted, served_at.address, HI, "editor/2.0")


@pytest.mark.slow
async def test_a_program_and_the_user_are_answered_in_turn(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate), (100, 30), reads_ahead=False) as chat:
        await chat.ready()
        with serving(ServerOptions("127.0.0.1", 0), GREEDY)(chat.app.engine) as served_at:
            asked = asyncio.create_task(asked_by_editor(served_at))
            await chat.until("answering editor")
            await chat.say("hello")
            gate.set()
            answered = await asked
            await chat.idle()
            await chat.until(lambda: "answering" not in chat.shown)
            assert chat.texts == [("user", "hello"), ("assistant", ALL)]
    assert answered["choices"][0]["message"]["content"] == ALL


@pytest.mark.slow
async def test_a_program_that_waits_is_told_and_answered_before_the_next_question(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[str] = []
    fill = Engine._fill

    def note(engine: Engine, answer: Answer) -> None:
        filled.append(answer.request.program or "user")
        fill(engine, answer)

    monkeypatch.setattr(Engine, "_fill", note)
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate), (100, 30), reads_ahead=False) as chat:
        await chat.ready()
        with serving(ServerOptions("127.0.0.1", 0), GREEDY)(chat.app.engine) as served_at:
            await chat.say("one")
            await chat.until(lambda: len(filled) == 1)
            asked = asyncio.create_task(asked_by_editor(served_at))
            await chat.until(lambda: "editor waits" in chat.shown.splitlines()[0])
            await chat.say("two")
            gate.set()
            await asked
            await chat.until(lambda: len(chat.texts) == 4 and chat.view.is_idle)
            await chat.until(lambda: "waits" not in chat.shown.splitlines()[0])
    assert filled == ["user", "editor", "user"]


@pytest.mark.slow
async def test_a_question_that_waits_for_a_program_is_taken_back_at_once(
    chatting: Chatting,
) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate)
    async with chatting(model, (100, 30), reads_ahead=False) as chat:
        await chat.ready()
        with serving(ServerOptions("127.0.0.1", 0), GREEDY)(chat.app.engine) as served_at:
            asked = asyncio.create_task(asked_by_editor(served_at))
            await chat.until("answering editor")
            await chat.say("hello")
            await chat.until("waiting for editor")
            assert "reading" not in chat.shown
            await chat.pilot.press("f5")
            await chat.until("your question waits for editor")
            await chat.pilot.press("escape")
            await chat.idle()  # though the gate is shut, and the program is still answered
            assert chat.view.dialogue.turns == []
            assert chat.prompt.text == "hello"
            assert "answering editor" in chat.shown
            gate.set()
            answered = await asked
            assert answered["choices"][0]["message"]["content"] == ALL
            passes = model.passes
            await asyncio.wrap_future(chat.app.engine.count(""))  # the turn it had is over
            assert model.passes == passes
            await chat.say("again")
            await chat.until(lambda: len(chat.texts) == 2 and chat.view.is_idle)
            assert chat.texts == [("user", "again"), ("assistant", ALL)]


async def test_the_address_is_no_warning_and_is_found_again_in_help() -> None:
    engine = Engine(start().session, Paths.of_this_user(), opened(ScriptedModel(WORDS)))
    served_at = ServedAt("http://127.0.0.1:8377")
    app = SpecchatApp(engine, None, replace(start(), served_at=served_at))
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            chat = Chat(app, pilot)
            await chat.until(lambda: "http://127.0.0.1:8377/v1" in chat.toasts)
            await chat.ready()
            assert not chat.cards
            assert "▲" not in chat.shown
            app.clear_notifications()
            await pilot.press("f1")
            await chat.until("http://127.0.0.1:8377/v1")
    finally:
        engine.close(10.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_wildcard_is_told_as_an_address_that_works_here(host: str) -> None:
    options = ServerOptions(host, 0, key="0123456789abcdef")
    with serving(options, GREEDY)(Engine(start().session, Paths.of_this_user())) as served_at:
        assert served_at.address.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="503"):  # it is there; no model is yet
            urllib.request.urlopen(f"{served_at.address}/health", timeout=60)
    assert ("all addresses" in served_at.words) is (host == "0.0.0.0")


def test_the_app_is_told_where_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[SpecchatApp] = []

    def note(app: SpecchatApp) -> None:
        begun.append(app)
        app._return_code = 7

    monkeypatch.setattr(SpecchatApp, "run", note)
    ended: list[str] = []
    served_at = ServedAt("http://127.0.0.1:8377")

    @contextmanager
    def companion(engine: Engine) -> Generator[ServedAt, None, None]:
        yield served_at
        ended.append("ended")

    assert tui.run(start(), Paths.of_this_user(), companion) == 7
    assert begun[0].store.served_at is served_at
    assert ended == ["ended"]


def test_a_server_that_cannot_listen_is_told_before_the_app_opens() -> None:
    options = ServerOptions("127.0.0.1", 0)
    with serving(options, GREEDY)(Engine(start().session, Paths.of_this_user())) as served_at:
        taken = ServerOptions("127.0.0.1", int(served_at.address.rpartition(":")[2]))
        with pytest.raises(UsageError, match="cannot listen"):
            tui.run(start(), Paths.of_this_user(), serving(taken, GREEDY))
