"""A version is switched where it stands, however long the chat is."""

from threading import Event

import pytest

from app.dialogue.tree import ASSISTANT, USER
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

LONG = "\n\n".join(f"Paragraph {number} of an answer." for number in range(12))


async def open_versions(chat: Chat) -> None:
    """Four questions, of which the last was edited."""
    dialogue = chat.view.dialogue.fresh()
    for number in range(3):
        dialogue.add(USER, f"question {number}")
        dialogue.add(ASSISTANT, LONG).is_growing = False
    last = dialogue.add(USER, "question 3")
    dialogue.add(ASSISTANT, "A short answer.").is_growing = False
    dialogue.add_version(last, "edited question")
    dialogue.add(ASSISTANT, "Another answer.").is_growing = False
    await chat.view.open(dialogue)
    await chat.pilot.pause()


@pytest.mark.slow
async def test_a_question_whose_version_is_switched_stays_in_view(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), keeps=False) as chat:
        await chat.ready()
        await open_versions(chat)
        transcript = chat.view.transcript
        await chat.pilot.press("tab", "up")
        for key, shown in (("left", "question 3"), ("right", "edited question")):
            await chat.pilot.press(key)
            await chat.until(lambda shown=shown: shown in chat.shown)
            await chat.pilot.pause()
            assert transcript.scroll_y > 0
            assert shown in chat.shown


@pytest.mark.slow
async def test_selecting_the_last_message_from_far_above_scrolls_to_it(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), keeps=False) as chat:
        await chat.ready()
        await open_versions(chat)
        await chat.pilot.press("tab", "up", "left")
        await chat.view.transcript.action_first()
        await chat.until("Paragraph 0")
        await chat.pilot.press("escape", "tab")
        await chat.until("A short answer.")


async def test_arrows_at_the_prompt_let_the_answer_in_progress_be_followed(
    chatting: Chatting,
) -> None:
    gate = Event()
    gate.set()
    lines = [f"line {number}\n\n" for number in range(40)]
    async with chatting(ScriptedModel(lines, gate=gate, holds_at=20), reads_ahead=False) as chat:
        await chat.ask("why?")
        gate.clear()
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: not chat.view.is_idle and "line 19" in chat.shown)
        grows = chat.view.last_turn()
        for keys, shows in (
            (("left",), True), (("tab", "left"), False), (("escape", "right"), True),
        ):  # fmt: skip
            await chat.pilot.press(*keys)
            await chat.until(lambda shows=shows: (chat.view.last_turn() is grows) == shows)
        assert chat.prompt.has_focus
        gate.set()
        await chat.idle()
        await chat.until("line 39")
        assert chat.view.transcript.is_anchored
