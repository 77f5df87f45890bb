"""Keys that stop an answer, as something else is wanted, say so and how it is shown again."""

from threading import Event

import pytest

from tests.app.tui.conftest import ALL, WORDS, Chat, Chatting
from tests.fixtures.scripted import ScriptedModel


def endless() -> ScriptedModel:
    return ScriptedModel(WORDS * 400, rate=300.0)


async def begin(chat: Chat, text: str) -> None:
    """Ask, and wait until the answer has begun."""
    before = len(chat.view.dialogue.turns)
    await chat.say(text)
    await chat.until(lambda: len(chat.texts) == before + 2 and bool(chat.texts[-1][1]))


async def stop(chat: Chat, text: str) -> None:
    """Have a question answered, and stop the answer."""
    await begin(chat, text)
    await chat.pilot.press("escape")
    await chat.idle()


@pytest.mark.slow
async def test_another_answer_says_that_it_stops_the_one_in_progress(chatting: Chatting) -> None:
    async with chatting(endless(), toasts=True) as chat:
        await chat.ready()
        await begin(chat, "And of Italy?")
        await chat.pilot.press("ctrl+r")
        told = "Stopped the answer to “And of Italy?”. Ctrl+Z shows it."
        await chat.until(lambda: told in chat.toasts)
        await chat.pilot.press("ctrl+z")
        await chat.until(lambda: "Undone: " in chat.toasts)
        assert chat.texts[0] == ("user", "And of Italy?")
        assert chat.texts[1][1].startswith("word0 ")


async def test_an_answer_that_has_not_begun_is_not_asked_for_again(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate), toasts=True) as chat:
        await chat.ready()
        await chat.say("And of Italy?")
        await chat.until(lambda: not chat.view.is_idle)
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: "The answer has not begun yet." in chat.toasts)
        gate.set()
        await chat.idle()
        assert chat.texts == [("user", "And of Italy?"), ("assistant", ALL)]


@pytest.mark.slow
async def test_an_edit_tells_which_answer_it_stops(chatting: Chatting) -> None:
    """It may be that of a question which was still queued when the edit began."""
    async with chatting(endless(), toasts=True) as chat:
        await chat.ready()
        await begin(chat, "And of Italy?")
        await chat.pilot.press("f9")
        await chat.until(lambda: chat.prompt.text == "And of Italy?")
        italy = chat.view.store.edited
        assert italy is not None
        chat.view.stop()
        await chat.idle()
        await chat.view.send("And of Spain?")
        await chat.until(lambda: len(chat.texts) == 4 and bool(chat.texts[-1][1]))
        await chat.view.edit(italy, "And of Greece?")
        told = "Stopped the answer to “And of Spain?”. Ctrl+Z shows it."
        await chat.until(lambda: told in chat.toasts)
        await chat.pilot.press("escape")
        await chat.idle()
        await chat.screen.action_perform("undo")
        await chat.until(lambda: ("user", "And of Spain?") in chat.texts)


@pytest.mark.slow
async def test_an_undo_tells_that_it_stops_an_answer(chatting: Chatting) -> None:
    async with chatting(endless(), toasts=True) as chat:
        await chat.ready()
        await stop(chat, "go on")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: not chat.view.is_idle and bool(chat.texts[-1][1]))
        await chat.pilot.press("ctrl+z")
        await chat.until(lambda: "which stopped an answer" in chat.toasts)


@pytest.mark.slow
async def test_no_answer_is_said_to_stop_that_was_stopped(chatting: Chatting) -> None:
    async with chatting(endless(), toasts=True) as chat:
        await chat.ready()
        await stop(chat, "go on")
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: not chat.view.dialogue.turns)
        assert "Stopped" not in chat.toasts
