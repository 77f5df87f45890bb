"""The list of chats: open, search, rename, remove and bring back, also when another window did."""

from contextlib import closing

import pytest
from textual.widgets import Input, OptionList, Static

from app.history import History
from app.paths import Paths
from app.tui.screens.chats_screen import ChatsScreen
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = ["one ", "two "]


def titles() -> list[str]:
    with closing(History.open(Paths.of_this_user().history)) as history:
        return [chat.title for chat in history.chats()]


async def opened(chat: Chat) -> OptionList:
    await chat.pilot.press("ctrl+o")
    await chat.until(lambda: isinstance(chat.app.screen, ChatsScreen))
    return chat.app.screen.query_one(OptionList)


async def test_an_earlier_chat_is_found_and_opened(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("about whales")
        await chat.say("/new")
        await chat.until(lambda: chat.texts == [])
        await chat.ask("about cars")
        listed = await opened(chat)
        assert listed.option_count == 2
        chat.app.screen.query_one(Input).value = "whal"
        await chat.until(lambda: listed.option_count == 1)
        await chat.pilot.press("enter")
        await chat.until(lambda: bool(chat.texts) and chat.texts[0] == ("user", "about whales"))


async def test_rename_remove_and_bring_back(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("about whales")
        listed = await opened(chat)
        await chat.pilot.press("down", "f2")
        chat.app.screen.query_one(Input).value = "Big fish"
        await chat.pilot.press("enter")
        await chat.until(lambda: titles() == ["Big fish"])
        await chat.pilot.press("down", "delete")
        await chat.until(lambda: titles() == [])
        await chat.pilot.press("ctrl+z")
        await chat.until(lambda: titles() == ["Big fish"])
        assert listed.option_count == 1
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.screen is chat.screen)


async def test_a_chat_removed_before_the_list_was_closed_comes_back(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("about whales")
        before = titles()
        await opened(chat)
        await chat.pilot.press("down", "delete")
        await chat.until(lambda: titles() == [])
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.screen is chat.screen)
        await opened(chat)
        await chat.pilot.press("ctrl+z")
        await chat.until(lambda: titles() == before)
        await chat.pilot.press("ctrl+z")
        await chat.until(
            lambda: (
                "No chat was removed" in " ".join(one.message for one in chat.app._notifications)
            )
        )


async def test_a_chat_that_another_window_removed(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("about whales")
        await opened(chat)
        with closing(History.open(Paths.of_this_user().history)) as other:
            (found,) = other.chats()
            other.remove(found.number)
        await chat.pilot.press("down", "f2")
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.screen is chat.screen)
        await chat.ask("more")
        assert titles() == ["about whales"]


@pytest.mark.parametrize("width", [40, 80, 160])
async def test_every_chat_is_one_line(chatting: Chatting, width: int) -> None:
    async with chatting(ScriptedModel(WORDS), (width, 24)) as chat:
        await chat.ask("a question as long as a title may be, and then a little more of it")
        listed = await opened(chat)
        await chat.until(lambda: listed.size.width > 0)
        await chat.pilot.pause()
        assert listed.virtual_size.height == 1
        line = str(listed.get_option_at_index(0).prompt)
        assert ("2 messages" in line) is (width > 40)
        assert listed.region.width == min(width, 120) - 2
        await chat.pilot.resize_terminal(40, 24)
        await chat.until(lambda: "messages" not in str(listed.get_option_at_index(0).prompt))


async def test_letters_over_the_list_search_and_nothing_found_is_told(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("about whales")
        listed = await opened(chat)
        await chat.pilot.press("down")
        await chat.until(lambda: chat.app.focused is listed)
        await chat.pilot.press("x", "q")
        await chat.until(lambda: chat.app.screen.query_one(Input).value == "xq")
        await chat.until(lambda: "No chat found" in str(listed.get_option_at_index(0).prompt))
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.app.screen is chat.screen)
        assert chat.texts[0] == ("user", "about whales")


async def test_renaming_says_what_is_typed(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("about whales")
        await opened(chat)
        field = chat.app.screen.query_one(Input)
        hint = chat.app.screen.query_one("#hint", Static)
        await chat.pilot.press("down", "f2")
        await chat.until(lambda: field.border_title == "New title")
        assert "Enter saves it" in str(hint.content)
        await chat.pilot.press("escape")
        await chat.until(lambda: not field.border_title)
        assert "Enter opens" in str(hint.content)
