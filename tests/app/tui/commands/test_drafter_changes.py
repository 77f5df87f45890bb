"""Changing the drafter: the frame tells what is chosen now, and Ctrl+Z takes it back."""

import pytest

from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = [f"word{number} " for number in range(10)]


@pytest.mark.slow
async def test_the_frame_follows_a_drafter_chosen_after_an_answer(chatting: Chatting) -> None:
    """The last answer's figures are of the drafters that it had."""
    async with chatting(ScriptedModel(WORDS * 200, rate=300.0)) as chat:
        await chat.ready()
        await chat.say("/draft lookup")
        await built(chat, "lookup")
        await chat.say("go on")
        await chat.until(lambda: len(chat.texts) == 2 and len(chat.texts[1][1]) > 50)
        await chat.say("/draft off")
        await built(chat)
        await chat.pilot.press("escape")
        await chat.idle()
        await chat.until(lambda: "drafting: off" in chat.shown)
        await chat.say("/draft lookup")
        await built(chat, "lookup")
        await chat.until(lambda: "drafting: lookup" in chat.shown)


async def test_a_drafter_is_taken_back_before_what_was_done_earlier(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ready()
        await chat.say("/set temperature 0.3")
        await chat.say("/draft lookup")
        await built(chat, "lookup")
        await chat.say("/draft lookup")  # which changes nothing
        await chat.pilot.press("ctrl+z")
        await chat.until(lambda: chat.app.engine.draft == "off")
        await built(chat)
        assert chat.view.dialogue.own == {"temperature": 0.3}
        await chat.pilot.press("ctrl+y")
        await built(chat, "lookup")


async def built(chat: Chat, *drafters: str) -> None:
    """Wait until the model has these drafters."""

    def holds() -> bool:
        loaded = chat.app.engine.status.loaded
        return loaded is not None and loaded.drafters == drafters

    await chat.until(holds)
