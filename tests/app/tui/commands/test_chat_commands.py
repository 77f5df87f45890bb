"""Slash commands and keys that cannot do what they are for: why is told, nothing typed is lost."""

from threading import Event

import pytest
from textual.content import Content

from app.actions import ACTIONS, unknown_command
from app.tui.prompt.completion import Completion
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = [f"word{number} " for number in range(10)]


def told(chat: Chat) -> str:
    return "\n".join(one.message for one in chat.app._notifications)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("/wrong", "/wrong"),
        ("/wrong and more", "/wrong"),
        ("/wrong\nand more lines", "/wrong"),
        ("/New", None),
        ("/usr/bin is full", None),
        ("/2 is a half", None),
        ("/", None),
        ("either/or", None),
    ],
)
def test_what_is_meant_as_a_command(text: str, word: str | None) -> None:
    assert unknown_command(text) == word


async def test_every_registered_action_has_a_command(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        assert chat.screen.commands.keys() == {action.name for action in ACTIONS}


async def test_a_wrong_command_of_several_lines_is_not_sent(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.say("/wrong\nwith more lines")
        await chat.until(lambda: "/wrong" in told(chat))
        assert chat.texts == []
        assert chat.prompt.text == "/wrong\nwith more lines"


@pytest.mark.parametrize(
    "line", ["/set temp 1", "/theme nrod", "/preset exat", "/draft ,", "/set draft ,"]
)
async def test_a_command_that_failed_stays_in_the_prompt(chatting: Chatting, line: str) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.say(line)
        await chat.until(lambda: bool(told(chat)))
        assert chat.prompt.text == line
        assert chat.prompt.cursor_location == (0, len(line))


async def test_the_beginning_of_a_name_names_it(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.say("/set temp 1")
        await chat.until(lambda: "nearest: temperature" in told(chat))
        await chat.say("/set top 1")
        await chat.until(lambda: "nearest: top_k, top_p" in told(chat))


async def test_a_command_that_failed_is_replaced_by_what_is_typed_next(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.say("/model nobody-knows")
        await chat.until(lambda: "model called 'nobody-knows'" in told(chat))
        assert chat.prompt.text == "/model nobody-knows"
        await chat.pilot.press("h", "i")
        assert chat.prompt.text == "hi"


async def test_brackets_of_commands_are_shown(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        chat.prompt.focus()
        await chat.pilot.press("slash", *"model")
        completion = chat.screen.query_one(Completion)
        await chat.until(lambda: completion.display)
        prompt = completion.get_option_at_index(0).prompt
        assert isinstance(prompt, Content)
        assert prompt.plain.startswith("/model [NAME]     Choose")


async def test_system_alone_tells_and_off_takes_away(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.say("/system Be [kind].")
        await chat.until(lambda: chat.view.dialogue.system == "Be [kind].")
        await chat.screen.action_perform("system")
        await chat.until(lambda: "System prompt: Be [kind]." in told(chat))
        assert chat.view.dialogue.system == "Be [kind]."
        await chat.say("/system off")
        await chat.until(lambda: chat.view.dialogue.system == "")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("f5", "needs a question"),
        ("f9", "no question"),
        ("ctrl+r", "no question"),
        ("ctrl+t", "no answer"),
        ("f12", "no answer"),
    ],
)
async def test_keys_in_an_empty_chat_say_why(chatting: Chatting, key: str, expected: str) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.pilot.press(key)
        await chat.until(lambda: expected in told(chat))


@pytest.mark.parametrize("key", ["f5", "f9", "ctrl+r", "ctrl+t"])
async def test_keys_in_mid_answer_say_that_it_is_at_work(chatting: Chatting, key: str) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate)) as chat:
        await chat.say("hello")
        await chat.until(lambda: chat.view.pending is not None)
        await chat.pilot.press(key)
        await chat.until(lambda: "in progress" in told(chat))
        assert len(chat.texts) == 2


async def test_one_code_block_is_one(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["```\n", "print(1)\n", "```\n"])) as chat:
        await chat.ask("hello")
        await chat.say("/code 2")
        await chat.until(lambda: "has 1 code block." in told(chat))
