"""What each registered action does on the chat screen."""

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.widgets import Static

from app.attachments import without_files
from app.engine_status import Phase
from app.tui import appearance
from app.tui.commands import model_commands, settings_commands
from app.tui.conversation import provenance
from app.tui.prompt.prompt import PromptArea
from app.tui.screens.chats_screen import ChatsScreen
from app.tui.screens.help_screen import HelpScreen
from app.tui.screens.race_screen import RaceScreen
from app.tui.status.panel import Panel
from app.tui.terminal.clipboard import copy
from backends.base import UsageError

if TYPE_CHECKING:
    from app.tui.screens.chat_screen import ChatScreen

_CODE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

_NOTHING = "off"
_NOTHING_TOLD = "The model is told nothing first."

Command = Callable[["ChatScreen", str], Awaitable[None]]


async def _stop(screen: "ChatScreen", argument: str) -> None:
    if screen.engine.status.phase is Phase.LOADING:
        screen.engine.stop_loading()
    if screen.work is not None:
        screen.work.answer.stop()


async def _help(screen: "ChatScreen", argument: str) -> None:
    screen.app.push_screen(HelpScreen(screen.preferences))


async def _panel(screen: "ChatScreen", argument: str) -> None:
    how = "hidden" if screen.query_one(Panel).display else "shown"
    screen.preferences = replace(screen.preferences, panel=how)
    appearance.show_panel(screen)


async def _origins(screen: "ChatScreen", argument: str) -> None:
    """Recolour the last answer, or show it as before."""
    answer, shown = screen.last_answer, screen.transcript.messages
    if screen.work is not None or answer is None or not shown or not answer.pieces:
        screen.notify("There is no finished answer to colour.")
        return
    message = shown[-1]
    found = message.query("#origins")
    text = message.query_one(".answer")
    if found:
        await found.remove()
        text.display = True
        return
    text.display = False
    content = provenance.painted(answer.pieces)
    await message.mount(Static(content, id="origins"), after=text)


async def _race(screen: "ChatScreen", argument: str) -> None:
    if not _idle(screen):
        return
    place = screen.dialogue.last("user")
    if place is None:
        screen.notify("A race needs a question that was answered.")
        return
    conversation = screen.dialogue.conversation(place + 1)
    screen.app.push_screen(
        RaceScreen(
            screen.engine,
            conversation,
            screen.settings,
            screen.max_tokens,
            screen.dialogue.chat,
        )
    )


async def _new(screen: "ChatScreen", argument: str) -> None:
    await screen.start(screen.dialogue.fresh())


async def _chats(screen: "ChatScreen", argument: str) -> None:
    history = screen.dialogue.history
    if history is None:
        screen.notify("Chats are not saved in this session.")
        return

    async def opened(number: int | None) -> None:
        if number is not None and number != screen.dialogue.chat:
            dialogue = screen.dialogue.fresh()
            dialogue.open(number)
            await screen.start(dialogue)

    screen.app.push_screen(ChatsScreen(history), opened)


async def _rename(screen: "ChatScreen", argument: str) -> None:
    screen.dialogue.rename(argument)
    screen.notify(f"This chat is called {argument}." if argument else "Example: /rename My title")


async def _export(screen: "ChatScreen", argument: str) -> None:
    if not argument:
        raise UsageError("where to?", "", "Example: /export chat.md")
    screen.notify(f"Written to {screen.dialogue.export(Path(argument).expanduser())}")


def _idle(screen: "ChatScreen") -> bool:
    if screen.work is not None:
        screen.notify("The answer is still at work; Esc stops it.")
    return screen.work is None


def _last(screen: "ChatScreen", role: str) -> int | None:
    """The place of the last turn of a role; that there is none is told."""
    place = screen.dialogue.last(role)
    if place is None:
        what = "question" if role == "user" else "answer"
        screen.notify(f"There is no {what} in this chat yet.")
    return place


async def _regenerate(screen: "ChatScreen", argument: str) -> None:
    place = _last(screen, "user")
    if place is None or not _idle(screen):
        return
    await _cut(screen, place + 1)
    await screen.ask()


async def _cut(screen: "ChatScreen", place: int) -> None:
    """Take the turns from a place on away, on the screen and in what is kept."""
    gone = len(screen.dialogue.turns) - place
    shown = screen.transcript.messages
    if gone and shown:
        await screen.transcript.remove_from(shown[max(0, len(shown) - gone)])
    screen.dialogue.cut(place)


async def _edit(screen: "ChatScreen", argument: str) -> None:
    place = _last(screen, "user")
    if place is None or not _idle(screen):
        return
    text = without_files(screen.dialogue.turns[place].text)
    await _cut(screen, place)
    area = screen.query_one(PromptArea)
    area.write(text)
    area.focus()


async def _go_on(screen: "ChatScreen", argument: str) -> None:
    place = _last(screen, "assistant")
    if place is None or not _idle(screen):
        return
    turns = screen.dialogue.turns
    if place < len(turns) - 1:
        screen.notify("The last question has no answer yet.")
        return
    turn = turns[place]
    await _cut(screen, place)
    await screen.ask(turn.text, turn.ending)


async def _copy_answer(screen: "ChatScreen", argument: str) -> None:
    place = _last(screen, "assistant")
    if place is not None:
        screen.notify(copy(screen.app, screen.dialogue.turns[place].text, "the answer"))


async def _copy_code(screen: "ChatScreen", argument: str) -> None:
    place = screen.dialogue.last("assistant")
    blocks = _CODE.findall(screen.dialogue.turns[place].text) if place is not None else []
    number = int(argument) if argument.isdecimal() else 1
    if not 1 <= number <= len(blocks):
        blocks_held = "1 code block" if len(blocks) == 1 else f"{len(blocks)} code blocks"
        screen.notify(f"The last answer has {blocks_held}.")
        return
    screen.notify(copy(screen.app, blocks[number - 1], f"code block {number}"))


async def _editor(screen: "ChatScreen", argument: str) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not command:
        raise UsageError("no editor is known", "$VISUAL and $EDITOR are not set")
    area = screen.query_one(PromptArea)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "question.md"
        file.write_text(area.text, encoding="utf-8")
        try:
            with screen.app.suspend():
                subprocess.run([*shlex.split(command), str(file)], check=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot run {command}", str(error)) from error
        area.write(file.read_text(encoding="utf-8").rstrip("\n"))


async def _system(screen: "ChatScreen", argument: str) -> None:
    system = screen.dialogue.system
    if not argument:
        told = f"The model is told first: {system}\n/system off takes it away."
        screen.notify(told if system else f"{_NOTHING_TOLD} Example: /system Be brief.", timeout=10)
    elif argument.lower() == _NOTHING:
        screen.dialogue.set_system("")
        screen.notify(_NOTHING_TOLD)
    else:
        screen.dialogue.set_system(argument)
        screen.notify("The model is told this first.")


async def _quit(screen: "ChatScreen", argument: str) -> None:
    screen.app.exit()


COMMANDS: dict[str, Command] = {
    "stop": _stop,
    "help": _help,
    "panel": _panel,
    "origins": _origins,
    "race": _race,
    "new": _new,
    "chats": _chats,
    "rename": _rename,
    "export": _export,
    "regenerate": _regenerate,
    "edit": _edit,
    "go_on": _go_on,
    "copy_answer": _copy_answer,
    "copy_code": _copy_code,
    "editor": _editor,
    "system": _system,
    "quit": _quit,
    **model_commands.COMMANDS,
    **settings_commands.COMMANDS,
}
