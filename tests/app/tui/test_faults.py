"""What goes wrong outside the app: full disks, lost files, other windows, a hasty exit."""

import re
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from app.engine.engine import Engine
from app.engine.session import Session
from app.engine.status import Phase, Status
from app.history import History
from app.loading.session_options import SessionOptions
from app.loading.streaming import Outlook, Share, StreamOfferError
from app.paths import Paths
from backends.base import ModelError, OutOfMemoryError, PeerLostError
from backends.streaming.mapped_file import DiskSpeed
from tests.app.engine.test_engine import request, text_of
from tests.app.tui.conftest import ALL, WORDS, Chat, Chatting
from tests.fixtures.scripted import ScriptedModel


def tokens_told(chat: Chat) -> int:
    """Tokens in the last picture of the answer at work."""
    work = chat.view.pending
    return (
        work.answer.metrics.completion_tokens
        if work is not None and work.answer.metrics is not None
        else 0
    )


@pytest.mark.slow
async def test_a_full_disk_is_told_and_the_chat_goes_on(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS), (120, 30)) as chat:
        await chat.ask("kept")
        history = chat.view.dialogue.history
        assert history is not None
        connection = history._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        await chat.ask("x" * 7_000)
        assert chat.texts[-1] == ("assistant", ALL)
        await chat.until("▲ not saved")
        assert "full" in chat.shown.splitlines()[0]
        connection.execute("PRAGMA max_page_count = 1000000")
        await chat.ask("there is room again")
        number = chat.view.dialogue.chat
        assert number is not None
        kept = [saved.text for saved in history.messages(number)]
        assert kept == ["kept", ALL, "x" * 7_000, ALL, "there is room again", ALL]
        await chat.until(lambda: "not saved" not in chat.shown)


@pytest.mark.slow
async def test_leaving_in_mid_reply_keeps_what_was_said(chatting: Chatting) -> None:
    model = ScriptedModel(WORDS * 200, rate=300.0)
    async with chatting(model) as chat:
        await chat.say("go on")
        await chat.until(lambda: tokens_told(chat) > 10)
        await chat.pilot.press("ctrl+q")
        assert chat.app.engine.close(10.0)
    with_all = History.open(Paths.of_this_user().history)
    try:
        (chat_kept,) = with_all.chats()
        said = with_all.messages(chat_kept.number)
        assert [saved.role for saved in said] == ["user", "assistant"]
        assert said[1].text.startswith("word0 word1 ")
        assert re.search(r"stopped after [\d,]+ tokens · Ctrl\+T continues$", said[1].ending)
    finally:
        with_all.close()


@pytest.mark.slow
async def test_an_answer_goes_on_in_the_chat_that_was_left(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS * 20, rate=300.0)) as chat:
        await chat.say("go on")
        await chat.until(lambda: tokens_told(chat) > 10)
        left = chat.view.dialogue
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: chat.view.dialogue is not left)
        history, number = left.history, left.chat
        assert history is not None
        assert number is not None
        text = "".join(WORDS * 20)
        await chat.until(lambda: history.messages(number)[1].text == text)
        assert re.match(r"[\d,]+ tokens", history.messages(number)[1].ending)


@pytest.mark.slow
async def test_two_windows_on_one_database(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as one, chatting(ScriptedModel(WORDS)) as other:
        await one.ask("from one")
        await other.ask("from the other")
        await one.ask("again from one")
        history = other.screen.view.dialogue.history
        assert history is not None
        kept = {chat.title: chat.messages for chat in history.chats()}
        assert kept == {"from one": 4, "from the other": 2}


@pytest.mark.slow
async def test_only_the_window_that_asks_has_a_cursor_and_only_until_the_end(
    chatting: Chatting,
) -> None:
    gate = Event()
    asking = ScriptedModel(WORDS, gate=gate, holds_at=10)
    async with chatting(asking) as one:
        gate.set()
        await one.ask("first")
        gate.clear()
        async with chatting(ScriptedModel(WORDS), continues=True) as other:
            await other.ready()
            await one.say("second")
            await one.until(lambda: "█" in one.shown)
            await other.until(lambda: len(other.texts) == 4 and "word0" in other.texts[3][1])
            assert "█" not in other.shown
            gate.set()
            await one.idle()
            await other.until(lambda: other.texts == one.texts)
            assert "█" not in one.shown + other.shown
            await other.ask("third")
            await one.until(lambda: one.texts == other.texts)
            assert "█" not in one.shown + other.shown


async def test_an_error_of_a_model_is_shown_once_and_whole(chat: Chat) -> None:
    engine = chat.app.engine
    await chat.until(lambda: engine.status.phase is Phase.READY)
    for word in ("damaged", "lost"):
        why = "very " * 50 + word
        engine._status = Status(Phase.FAILED, error=ModelError("it cannot be loaded", why))
        await chat.until(lambda word=word: word in chat.shown)
        assert chat.shown.count("cannot be loaded") == 1
        assert "no model" in chat.shown.splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize("asks", [False, True], ids=["retry", "message"])
async def test_a_lost_machine_is_connected_to_again(chat: Chat, asks: bool) -> None:
    engine = chat.app.engine
    await chat.ask("first")
    opens = engine._open

    def refused(*_: object) -> Session:
        raise PeerLostError("box:5", "refused for now")

    engine._open = refused
    engine._reported(PeerLostError("box:5", "it ended the connection"))
    await chat.pilot.press("ctrl+t")
    await chat.until("refused for now")
    if asks:
        await chat.say("second")
        await chat.until(lambda: chat.screen.prompt.area.text == "second")
    await chat.idle()
    engine._open = opens
    await chat.pilot.press("enter" if asks else "ctrl+t")
    await chat.until(lambda: engine.status.phase is Phase.READY)
    await chat.idle()
    assert chat.texts[-1] == ("assistant", ALL)
    assert (("user", "second") in chat.texts) == asks
    assert "refused" not in chat.shown


async def test_a_model_larger_than_memory_is_asked_about(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed: list[str] = []
    monkeypatch.setattr(Engine, "stream", lambda _, offer: agreed.append(offer.model))
    refusal = OutOfMemoryError("big needs 1.2 GB", "0.9 GB are free", "Choose another.")
    disk = DiskSpeed(1.1e9, "measured")
    outlook = Outlook(Share(600_000_000, 590_000_000), disk, 1.87)
    async with chatting(ScriptedModel(WORDS), (120, 30)) as chat:
        engine = chat.app.engine
        await chat.until(lambda: engine.status.phase is Phase.READY)
        offer = StreamOfferError(refusal, "big", Path("big.gguf"), outlook)
        engine._status = Status(Phase.FAILED, error=offer)
        await chat.until("Read it from disk?")
        assert "about 1.9 tok/s" in " ".join(chat.shown.split())
        assert "Enter reads it from disk" in chat.shown.splitlines()[-1]
        await chat.pilot.press("enter")
        await chat.until(lambda: agreed == ["big"])


async def test_a_load_that_was_cancelled_says_no_error_and_keeps_the_question(chat: Chat) -> None:
    engine = chat.app.engine
    await chat.until(lambda: engine.status.phase is Phase.READY)
    engine._status = Status(Phase.FAILED)
    await chat.say("kept")
    await chat.until("waiting for a model")
    assert chat.cards == ""
    await chat.pilot.press("enter")
    await chat.until(lambda: len(chat.texts) == 2 and chat.texts[1][1] == ALL)


@pytest.mark.usefixtures("llamacpp")
def test_a_model_file_that_is_deleted_meanwhile(tiny_llama: Callable[..., Path]) -> None:
    folder = Paths.of_this_user().models
    folder.mkdir(parents=True)
    file = folder / "gone.gguf"
    file.write_bytes(tiny_llama().read_bytes())
    engine = Engine(SessionOptions(model="gone", draft="off"), Paths.of_this_user())
    engine.start()
    try:
        first = engine.ask(request(max_tokens=4))
        text_of(first)
        assert first.error is None
        file.unlink()
        second = engine.ask(request(max_tokens=4))
        text_of(second)
        assert second.error is None
        engine.load("gone")
        third = engine.ask(request(max_tokens=4))
        text_of(third)
        assert third.error is not None
        assert engine.status.phase is Phase.FAILED
        assert "gone" in str(engine.status.error)
    finally:
        assert engine.close(10.0)
