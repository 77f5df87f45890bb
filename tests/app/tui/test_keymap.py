"""Keys of the user's own: they do what they are given, and what cannot work is told."""

from pathlib import Path

import pytest

from app.actions import ACTIONS
from app.paths import Paths
from app.tui.keymap import usable_keys
from app.tui.panel.panel import Panel
from app.tui.screens.chats import ChatsScreen
from app.tui.screens.help import HelpScreen
from app.tui.screens.settings import SettingsScreen
from tests.app.tui.conftest import Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = ["one ", "two "]
FILE = Path("config.toml")


def write(text: str) -> None:
    path = Paths.of_this_user().settings
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.slow
async def test_another_key_does_it_and_the_usual_one_no_longer(chatting: Chatting) -> None:
    write('[keys]\nchats = "f10, Alt+O"\nsettings = "ctrl+o"\n')
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.until(lambda: chat.screen.is_current)
        for key, kind in (("f10", ChatsScreen), ("alt+o", ChatsScreen), ("ctrl+o", SettingsScreen)):
            await chat.pilot.press(key)
            await chat.until(lambda kind=kind: isinstance(chat.app.screen, kind))
            await chat.pilot.press("escape")
            await chat.until(lambda: chat.app.screen is chat.screen)
        await chat.pilot.press("f8")
        await chat.pilot.pause()
        assert chat.app.screen is chat.screen


async def test_two_actions_may_change_keys(chatting: Chatting) -> None:
    write('[keys]\nhelp = "f2"\npanel = "f1"\n')
    async with chatting(ScriptedModel(WORDS)) as chat:
        panel = chat.screen.query_one(Panel)
        before = panel.display
        await chat.pilot.press("f1")
        await chat.until(lambda: panel.display is not before)
        await chat.pilot.press("f2")
        await chat.until(lambda: isinstance(chat.app.screen, HelpScreen))
        (line,) = [one for one in chat.shown.splitlines() if "Show the panel" in one]
        assert "F1" in line


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"new": "f4"}, ["'f4'", "colours", "new"]),
        ({"new": "f10", "chats": "F10"}, ["'f10'", "chats", "new"]),
        ({"new": "ctrl+wurst"}, ["keys.new", "'ctrl+wurst'", "no such key"]),
        ({"new": "ctrl+banana"}, ["keys.new", "'ctrl+banana'", "no such key"]),
        ({"new": "strg+n"}, ["'strg+n'", "no such key"]),
        ({"new": "x"}, ["'x'", "prompt"]),
        ({"new": "ctrl+k"}, ["'ctrl+k'", "prompt"]),
        ({"new": "enter"}, ["'enter'", "prompt"]),
        ({"new": "ctrl+q", "quit": "f10"}, ["'ctrl+q'", "quit and new"]),
        ({"new": "ctrl+p"}, ["'ctrl+p'", "palette"]),
    ],
)
def test_what_cannot_work_is_told(keys: dict[str, str], told: list[str]) -> None:
    usable, (refused,) = usable_keys(keys, FILE)
    assert len(usable) == len(keys) - 1
    assert all(part in str(refused) for part in told), refused
    assert "config.toml" in str(refused)


@pytest.mark.parametrize(
    "key",
    ["f10", "ctrl+b", "alt+o", "ctrl+pageup", "ctrl+shift+f5", "ctrl+question_mark", "insert"],
)
def test_what_can_work_is_taken(key: str) -> None:
    assert usable_keys({"new": key}, FILE) == ({"new": key}, ())


def test_the_usual_keys_are_free() -> None:
    usual = {one.name: one.keys for one in ACTIONS if one.keys}
    assert usable_keys(usual, FILE) == (usual, ())


def test_an_action_whose_key_cannot_work_keeps_its_usual_one_also_if_another_wants_that() -> None:
    usable, faults = usable_keys({"panel": "strg+p", "help": "f2", "new": "alt+n"}, FILE)
    assert usable == {"new": "alt+n"}
    assert ["no such key" in str(faults[0]), "help and panel" in str(faults[1])] == [True, True]
