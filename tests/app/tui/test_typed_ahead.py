"""Keys that come quicker than the app: Enter sends what stood there, nothing typed is lost."""

from textual import events

from app.tui.prompt import Completion
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = [f"word{number} " for number in range(10)]
_KEYS = {"\r": "enter", "/": "slash", " ": "space"}


def hurry(chat: Chat, text: str) -> None:
    """Have keys wait for the prompt all at once, as on a busy machine."""
    chat.prompt.focus()
    for letter in text:
        character = None if letter == "\r" else letter
        chat.prompt.post_message(events.Key(_KEYS.get(letter, letter), character))


async def test_what_is_typed_behind_a_question_stays(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        hurry(chat, "one\rtwo")
        await chat.until(lambda: chat.texts[:1] == [("user", "one")])
        await chat.until(lambda: chat.prompt.text == "two")


async def test_two_questions_at_once_are_two(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        hurry(chat, "one\rtwo\r")
        await chat.until(lambda: len(chat.texts) == 4 and chat.screen.work is None)
        assert [text for role, text in chat.texts if role == "user"] == ["one", "two"]
        assert chat.prompt.text == ""


async def test_what_is_typed_behind_a_command_stays(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        hurry(chat, "/set temperature 0.5\rtwo")
        await chat.until(lambda: chat.screen.settings.temperature == 0.5)
        await chat.until(lambda: chat.prompt.text == "two")


async def test_a_whole_command_is_not_cut_to_what_is_offered_for_its_beginning(
    chatting: Chatting,
) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.pilot.press("slash", "s", "e", "t")
        assert chat.screen.query_one(Completion).display
        hurry(chat, " temperature 0.5\r")
        await chat.until(lambda: chat.screen.settings.temperature == 0.5)
        assert chat.prompt.text == ""


async def test_a_command_that_is_picked_goes_on_with_what_is_typed(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.pilot.press("slash", "s", "e", "t")
        hurry(chat, "\rtop")
        await chat.until(lambda: chat.prompt.text == "/set top")


async def test_a_wrong_command_comes_back_before_what_was_typed_since(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        hurry(chat, "/wrong\rtwo")
        await chat.until(lambda: chat.prompt.text == "/wrong\ntwo")
