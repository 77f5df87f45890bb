"""A command of the user's runs beside the chat, and its output is attached to the question."""

import asyncio
import os
import sys
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, cast

import pytest

from app.paths import Paths
from app.tui.commands import shell
from app.tui.commands.shell import run
from tests.app.tui.conftest import WORDS, Chatting
from tests.fixtures.scripted import ScriptedModel

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="commands of a POSIX shell")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_its_output_joins_what_is_typed_and_is_sent_with_it(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["Two."])) as chat:
        await chat.say("!printf 'one\\ntwo\\n'")
        area = chat.prompt
        await chat.until(lambda: "[$ printf" in area.text)
        await chat.pilot.press(*"Which?")
        await chat.pilot.press("enter")
        await chat.until(lambda: len(chat.view.dialogue.turns) == 2 and chat.view.is_idle)
        question = chat.view.dialogue.turns[0]
        assert question.text.endswith("3 lines] Which?")
        assert [one.text for one in question.attachments] == ["$ printf 'one\\ntwo\\n'\none\ntwo"]


@pytest.mark.slow
async def test_its_output_waits_for_the_chat_that_it_was_started_in(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["Two."]), toasts=True) as chat:
        await chat.ask("first")
        await chat.say("!until [ -e go ]; do sleep 0.01; done; echo done")
        await chat.pilot.press("ctrl+n", *"Other")
        Path("go").touch()
        await chat.until(lambda: "waits in its chat" in chat.toasts)
        assert chat.prompt.text == "Other"
        await chat.screen.action_perform("chats", "1")
        await chat.until(lambda: chat.prompt.text.startswith("Other [$ until"))
        await chat.pilot.press("ctrl+a", "delete", "ctrl+n")
        await chat.say("!echo new")
        await chat.until(lambda: "[$ echo new" in chat.prompt.text)


async def test_its_output_is_for_the_unsent_text_not_for_an_edited_question(
    chatting: Chatting,
) -> None:
    async with chatting(ScriptedModel(["Two."]), toasts=True) as chat:
        await chat.ask("first")
        await chat.say("!until [ -e go ]; do sleep 0.01; done; echo done")
        await chat.pilot.press("f9")
        Path("go").touch()
        await chat.until(lambda: "waits in its chat" in chat.toasts)
        assert chat.prompt.text == "first"
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.prompt.text.startswith("[$ until"))


async def test_it_has_no_folded_text_and_a_prompt_takes_its_output(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["Two."])) as chat:
        await chat.say("!echo one")
        await chat.until(lambda: "[$ echo one" in chat.prompt.text)
        chat.prompt.move_cursor((0, 0))
        await chat.pilot.press(*"!wc ", "enter")
        await chat.until(lambda: "typed in full" in chat.prompt.fault)
        assert chat.prompt.text == "!wc [$ echo one: 2 lines] "
        await chat.pilot.press("home", *["delete"] * 4, "end", *"/explain", "enter")
        await chat.until(lambda: len(chat.view.dialogue.turns) == 2 and chat.view.is_idle)
        asked = chat.view.dialogue.turns[0]
        assert asked.text.endswith("[$ echo one: 2 lines]")
        assert asked.text.startswith("Explain")
        assert [one.text for one in asked.attachments] == ["$ echo one\none"]


@pytest.mark.slow
async def test_another_runs_behind_outputs_and_each_joins_the_question(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["Two."])) as chat:
        area = chat.prompt
        await chat.say("!echo one")
        await chat.until(lambda: "[$ echo one" in area.text)
        await chat.pilot.press("!", "enter")
        await chat.until(lambda: "which command?" in area.fault)
        assert area.text == "[$ echo one: 2 lines] !"
        area.insert("echo two")
        await chat.pilot.press("enter")
        await chat.until(lambda: "[$ echo two" in area.text)
        assert [one.text for one in area.written.attachments] == [
            "$ echo one\none",
            "$ echo two\ntwo",
        ]
        await chat.pilot.press(*"!ec")
        area.attach("late", "$ late:")
        await chat.pilot.press(*"ho three", "enter")
        await chat.until(lambda: "[$ echo three" in area.text)
        assert area.text.startswith("[$ late: 4 characters] [$ echo one")
        assert not chat.view.dialogue.turns


@pytest.mark.slow
async def test_what_runs_and_what_waits_is_unsent_text_after_a_restart(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["Two."]), toasts=True) as chat:
        await chat.ask("first")
        await chat.say("!until [ -e go ]; do sleep 0.01; done; echo done")
        await chat.pilot.press("ctrl+n")
        Path("go").touch()
        await chat.until(lambda: "waits in its chat" in chat.toasts)
        await chat.say("!echo $$ > pid; exec sleep 1000")
        await chat.until(lambda: Path("pid").exists() and bool(Path("pid").read_text()))
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("pid").read_text()), 0)
    async with chatting(ScriptedModel(["Two."])) as chat:
        assert chat.prompt.text.startswith("!echo $$ > pid; exec sleep 1000\n\n")
        assert "```\n$ until [" in chat.prompt.text
        assert chat.prompt.text.endswith("\ndone\n```\n")
        await chat.pilot.press("enter")
        assert "a command is a line of its own · Enter again sends" in chat.prompt.fault
        assert not chat.view.dialogue.turns


@pytest.mark.slow
async def test_esc_stops_it_before_an_answer_or_an_error_that_is_shown(chatting: Chatting) -> None:
    model = ScriptedModel(WORDS, gate=Event(), holds_at=3)
    async with chatting(model, toasts=True, reads_ahead=False) as chat:
        await chat.view.show_fault("too long", "Shorten it.")
        await chat.say("!sleep 1000")
        await chat.until(lambda: "Running sleep" in chat.toasts)
        await chat.until("Esc stops the command")
        await chat.pilot.press("escape")
        await chat.until(lambda: "Stopped the command." in chat.toasts)
        assert "Running" not in chat.toasts
        assert "too long" in chat.cards
        await chat.until(lambda: not chat.screen.commands.is_running)
        await chat.say("!sleep 1002")
        await chat.until(lambda: "Running sleep" in chat.toasts)
        await chat.pilot.press("ctrl+c")
        await chat.until(lambda: "Stopped the command." in chat.toasts)
        assert not chat.prompt.quits_next
        await chat.until(lambda: not chat.screen.commands.is_running)
        await chat.say("!sleep 1001")
        await chat.until(lambda: "Running sleep" in chat.toasts)
        await chat.say("first")
        await chat.until(lambda: chat.screen.store.is_answering)
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.screen.commands.is_running)
        assert not chat.view.is_idle
        await chat.pilot.press("escape")
        assert isinstance(model.gate, Event)
        model.gate.set()
        await chat.idle()
        assert chat.view.dialogue.turns[-1].text != "".join(WORDS)


async def test_it_is_refused_where_it_is_switched_off(chatting: Chatting) -> None:
    settings = Paths.of_this_user().settings
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("shell = false")
    async with chatting(ScriptedModel(["Two."])) as chat:
        await chat.say("!touch made")
        await chat.until(lambda: "--no-shell" in chat.prompt.fault)
        assert chat.prompt.text == "!touch made"


async def test_esc_stops_it_and_how_it_ended_is_told(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["Two."]), toasts=True) as chat:
        await chat.say("!sleep 1000")
        await chat.until(lambda: "Running sleep" in chat.toasts)
        await chat.say("!false")
        await chat.until(lambda: "a command is running" in chat.prompt.fault)
        chat.prompt.text = ""
        await chat.pilot.press("escape")
        await chat.until(lambda: "Stopped the command." in chat.toasts)
        await chat.say("!")
        await chat.until(lambda: "which command?" in chat.prompt.fault)
        chat.prompt.text = "so"
        chat.prompt.move_cursor(chat.prompt.document.end)
        screen = cast("ChatScreen", chat.app.screen)
        await screen.action_perform("shell", "false")
        await chat.until(lambda: chat.prompt.text.startswith("so [$ false, exit code 1: "))


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo out; echo err >&2; exit 3", "out\nerr\n[exit code 3]"),
        ("printf '\\033[31mred\\033[0m'", "red"),
        ("cat", ""),
        ("nosuchcommand-at-all 2>/dev/null", "[exit code 127]"),
        ("printf '\\377'", "\ufffd"),
    ],
)
async def test_what_a_command_wrote_is_plain_text_with_how_it_ended(
    command: str, output: str
) -> None:
    written, end = await run(command, 60)
    assert written == f"$ {command}\n{output}".rstrip()
    assert written.endswith(f"[{end}]" if end else written)


async def test_one_that_does_not_end_is_ended_with_what_it_started() -> None:
    written, _ = await run("echo begun; sleep 1000 & wait", 0.3)
    assert written.endswith("begun\n[stopped after 0 s]")


@pytest.mark.slow
async def test_one_that_writes_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "_MOST_BYTES", 1 << 16)
    for _ in range(10):  # a pipe that is full when it is killed once kept it from ending
        _, end = await run("yes", 60)
        assert end == "ended after 0 MB"


async def test_of_a_long_output_beginning_and_end_are_kept() -> None:
    written, end = await run("seq 200000", 60)
    assert written.startswith("$ seq 200000\n1\n2\n")
    assert written.endswith("\n199999\n200000")
    size = sum(len(f"{number}\n") for number in range(1, 200_001))
    assert f"\n[{size - 65536:,} bytes are left out here]\n" in written
    assert len(written) < 66_000
    assert not end


async def test_one_that_may_not_be_killed_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs: list[shell._Output] = []

    class Output(shell._Output):
        def __init__(self) -> None:
            super().__init__()
            outputs.append(self)

    def refuse(pid: int, sent: int) -> None:
        raise PermissionError(pid, sent)

    monkeypatch.setattr(shell, "_Output", Output)

    monkeypatch.setattr(shell, "_END_SECONDS", 0.01, raising=False)
    with monkeypatch.context() as refusing:
        refusing.setattr(os, "killpg", refuse)
        async with asyncio.timeout(20):
            written, _ = await run("echo begun; exec sleep 1000", 0.3)
        await outputs[0].lost.wait()  # here it may be killed in the end
    assert written.endswith("begun\n[stopped after 0 s]")


async def test_what_leaves_its_group_is_not_waited_for() -> None:
    leaves = "import os, time; os.setsid(); time.sleep(20)"
    written, _ = await run(f"{sys.executable} -c '{leaves}' & echo begun", 1)
    assert written.endswith("begun\n[stopped after 1 s]")
