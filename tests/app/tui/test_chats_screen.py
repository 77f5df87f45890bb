"""The list of chats: open, search, rename, remove and bring back, also when another window did."""

from contextlib import closing

from textual.widgets import Input, OptionList

from app.history import History
from app.paths import Paths
from app.tui.chats_screen import ChatsScreen
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
