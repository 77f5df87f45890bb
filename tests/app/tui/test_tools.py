"""Tools in the app: what is offered, run, asked about, shown and kept."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.paths import Paths
from app.tui.chat.view import ChatView
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures import tool_servers
from tests.fixtures.caller import Caller, call

SEARCH = call("search", '{"words": "tea"}')
ECHO = call("probe.echo", '{"text": "hello"}')


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "plan.md").write_text("Buy green tea.\n")

    def roots(_: ChatView) -> Sequence[Path]:
        return [notes]

    monkeypatch.setattr(ChatView, "_roots", roots)
    return notes


async def begin(chat: Chat, tools: str) -> None:
    await chat.ready()
    await chat.say(f"/tools {tools}")
    await chat.until(lambda: chat.view.answering.tools == tools)


async def test_files_are_searched_without_asking_and_the_answer_goes_on(chatting: Chatting) -> None:
    model = Caller(f"Let me look.\n{SEARCH}", "You wanted green tea.")
    async with chatting(model) as chat:
        await begin(chat, "files")
        await chat.say("What did I want?")
        await chat.until("You wanted green tea.")
        await chat.idle()
        assert chat.texts[2] == ("tool", "notes/plan.md:1: Buy green tea.")
        assert "Let me look." in chat.shown
        assert "<tool_call>" not in chat.shown
        print(chat.shown)
        assert "notes/plan.md:1" not in chat.shown  # it is folded
        assert "notes/plan.md:1: Buy green tea." in model.asked[-1]


async def test_try(chatting: Chatting, tmp_path: Path) -> None:
    paths = Paths.of_this_user()
    paths.config.mkdir(parents=True)
    tool_servers.write(paths.config, {"probe": tool_servers.over_streams(tmp_path / "n")})
    model = Caller(f"Let me see.\n{ECHO}", f"More.\n{ECHO}{SEARCH}", "All is said.")
    async with chatting(model, size=(100, 40)) as chat:
        await begin(chat, "files, probe")
        await chat.say("What did I want?")
        await chat.until("Ctrl+T decides")
        print(chat.shown)
        await chat.press("ctrl+t")
        await chat.pilot.pause(0.2)
        print(chat.shown)
        await chat.press("down", "enter")
        await chat.until("All is said")
        await chat.idle()
        print(chat.shown)
        print(chat.texts, chat.view.dialogue.own)
