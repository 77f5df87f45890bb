"""The palette of all commands."""

from typing import Any, cast

from app.actions import ACTIONS
from tests.app.tui.conftest import Chatting
from tests.fixtures.scripted import ScriptedModel


async def test_it_lists_our_actions_alone_with_keys_as_elsewhere(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        commands = list(chat.app.get_system_commands(cast("Any", chat.screen)))
        assert [command.title for command in commands] == [action.title for action in ACTIONS]
        helps = {command.title: command.help for command in commands}
        assert helps["Add another answer"] == "Ctrl+R  /regenerate /retry"
        assert helps["Choose a drafter by name"] == "/draft SPEC"
        assert helps["Search all commands"] == "Ctrl+P"
