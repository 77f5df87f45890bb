"""What each registered action does on the chat screen."""

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.tui import model_commands, settings_commands
from app.tui.chats_screen import ChatsScreen
from app.tui.clipboard import copy
from app.tui.help_screen import HelpScreen
from app.tui.panel import Panel
from app.tui.prompt import PromptArea
from app.tui.race_screen import RaceScreen
from backends.base import UsageError

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

_CODE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

Command = Callable[["ChatScreen", str], Awaitable[None]]


async def _stop(screen: "ChatScreen", argument: str) -> None:
    if screen.work is not None:
        screen.work.answer.stop()


async def _help(screen: "ChatScreen", argument: str) -> None:
    screen.app.push_screen(HelpScreen(screen.preferences))


async def _panel(screen: "ChatScreen", argument: str) -> None:
    panel = screen.query_one(Panel)
    panel.display = not panel.display
    screen.figures.refresh()


async def _origins(screen: "ChatScreen", argument: str) -> None:
    await screen.show_origins()


async def _race(screen: "ChatScreen", argument: str) -> None:
    place = screen.dialogue.last("user")
    if screen.work is not None or place is None:
        screen.notify("A race needs a question that was answered.")
        return
    conversation = screen.dialogue.conversation(place + 1)
    screen.app.push_screen(
        RaceScreen(screen.engine, conversation, screen.settings, screen.max_tokens)
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


async def _regenerate(screen: "ChatScreen", argument: str) -> None:
    place = screen.dialogue.last("user")
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
    place = screen.dialogue.last("user")
    if place is None or not _idle(screen):
        return
    text = screen.dialogue.turns[place].text
    await _cut(screen, place)
    area = screen.query_one(PromptArea)
    area.text = text
    area.move_cursor(area.document.end)
    area.focus()


async def _go_on(screen: "ChatScreen", argument: str) -> None:
    turns = screen.dialogue.turns
    if not turns or turns[-1].role != "assistant" or not _idle(screen):
        return
    partial = turns[-1].text
    await _cut(screen, len(turns) - 1)
    await screen.ask(partial)


async def _copy_answer(screen: "ChatScreen", argument: str) -> None:
    place = screen.dialogue.last("assistant")
    if place is not None:
        screen.notify(copy(screen.app, screen.dialogue.turns[place].text, "the answer"))


async def _copy_code(screen: "ChatScreen", argument: str) -> None:
    place = screen.dialogue.last("assistant")
    blocks = _CODE.findall(screen.dialogue.turns[place].text) if place is not None else []
    number = int(argument) if argument.isdecimal() else 1
    if not 1 <= number <= len(blocks):
        screen.notify(f"The last answer has {len(blocks)} code blocks.")
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
        area.text = file.read_text(encoding="utf-8").rstrip("\n")
    area.move_cursor(area.document.end)


async def _system(screen: "ChatScreen", argument: str) -> None:
    screen.dialogue.set_system(argument)
    screen.notify("The model is told this first." if argument else "No system message any more.")


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
