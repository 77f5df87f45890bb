"""Keys that come quicker than the app: Enter sends what stood there, nothing typed is lost."""

from contextlib import closing

import pytest
from textual import events

from app.chat.composer_draft import ComposerDraft
from app.history import History
from app.paths import Paths
from app.tui.prompt.completion import Completion
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = [f"word{number} " for number in range(10)]
_KEYS = {"\r": "enter", "/": "slash", " ": "space", "\x11": "ctrl+q"}


def hurry(chat: Chat, text: str) -> None:
    """Have keys wait for the prompt all at once, as on a busy machine."""
    chat.prompt.focus()
    for letter in text:
        character = letter if letter.isprintable() else None
        chat.prompt.post_message(events.Key(_KEYS.get(letter, letter), character))


async def test_what_is_typed_behind_a_question_stays(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        hurry(chat, "one\rtwo")
        await chat.until(lambda: chat.texts[:1] == [("user", "one")])
        await chat.until(lambda: chat.prompt.text == "two")


async def test_two_questions_at_once_are_two(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        hurry(chat, "one\rtwo\r")
        await chat.until(lambda: len(chat.texts) == 4 and chat.view.pending is None)
        assert [text for role, text in chat.texts if role == "user"] == ["one", "two"]
        assert chat.prompt.text == ""


async def test_what_is_typed_behind_a_command_stays(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        hurry(chat, "/set temperature 0.5\rtwo")
        await chat.until(lambda: chat.view.answering.sampling.temperature == 0.5)
        await chat.until(lambda: chat.prompt.text == "two")


async def test_a_whole_command_is_not_cut_to_what_is_offered_for_its_beginning(
    chatting: Chatting,
) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.pilot.press("slash", "s", "e", "t")
        assert chat.screen.query_one(Completion).display
        hurry(chat, " temperature 0.5\r")
        await chat.until(lambda: chat.view.answering.sampling.temperature == 0.5)
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


@pytest.mark.parametrize("keys", ["one\r", "one\rtwo", "/wrong\rtwo"])
async def test_what_was_sent_or_typed_when_the_app_is_left_is_kept(
    chatting: Chatting, keys: str
) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        hurry(chat, f"{keys}\x11")
        await chat.until(lambda: chat.app._exit)
    paths = Paths.of_this_user()
    with closing(History.open(paths.history)) as history:
        said = [one.text for found in history.chats() for one in history.messages(found.number)]
    kept = "\n".join([*said, ComposerDraft(paths).left])
    assert all(word in kept for word in keys.strip("/").split("\r"))
