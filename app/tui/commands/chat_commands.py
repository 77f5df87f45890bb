"""Commands on the current chat, its answers and the other chats."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.app import App

from app.engine.engine import Engine
from app.engine.engine_status import Phase
from app.tui.conversation.chat_view import ChatView
from app.tui.prompt.prompt_area import PromptArea
from app.tui.screens.chats_screen import ChatsScreen
from app.tui.screens.race_screen import RaceScreen
from app.tui.terminal.clipboard import copy
from backends.base import UsageError

_CODE_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

_OFF = "off"


@dataclass(frozen=True, slots=True)
class ChatCommands:
    """Answering again, copying, exporting, racing, and switching chats."""

    app: App[Any]
    engine: Engine
    view: ChatView
    prompt: PromptArea

    def stop(self) -> None:
        if self.engine.status.phase is Phase.LOADING:
            self.engine.stop_loading()
        self.view.stop()

    async def origins(self) -> None:
        await self.view.toggle_origins()

    def race(self) -> None:
        if not self.view.is_idle():
            return
        dialogue, answering = self.view.dialogue, self.view.answering
        index = dialogue.last("user")
        if index is None:
            self.app.notify("A race needs a question that was answered.")
            return
        race = RaceScreen(
            self.engine,
            dialogue.conversation(index + 1),
            answering.sampling,
            answering.max_tokens,
            dialogue.chat,
        )
        self.app.push_screen(race)

    async def new(self) -> None:
        await self.view.open(self.view.dialogue.fresh())

    def chats(self) -> None:
        history = self.view.dialogue.history
        if history is None:
            self.app.notify("Chats are not saved in this session.")
            return
        self.app.push_screen(ChatsScreen(history, self.engine.paths), self._open)

    async def _open(self, chat: int | None) -> None:
        if chat is not None and chat != self.view.dialogue.chat:
            dialogue = self.view.dialogue.fresh()
            dialogue.open(chat)
            await self.view.open(dialogue)

    def rename(self, title: str) -> None:
        self.view.dialogue.rename(title)
        self.app.notify(f"This chat is now called {title}." if title else "Example: /rename Title")

    def export(self, path: str) -> None:
        if not path:
            raise UsageError("which file?", "", "Example: /export chat.md")
        written = self.view.dialogue.export(Path(path).expanduser())
        self.app.notify(f"Exported to {written}")

    async def regenerate(self) -> None:
        await self.view.regenerate()

    async def go_on(self) -> None:
        await self.view.continue_answer()

    async def edit(self) -> None:
        question = await self.view.take_last_question()
        if question is not None:
            self.prompt.write(question)
            self.prompt.focus()

    def copy_answer(self) -> None:
        index = self.view.last_turn("assistant")
        if index is not None:
            text = self.view.dialogue.turns[index].text
            self.app.notify(copy(self.app, text, "the answer"))

    def copy_code(self, number: str) -> None:
        dialogue = self.view.dialogue
        index = dialogue.last("assistant")
        blocks = _CODE_BLOCK.findall(dialogue.turns[index].text) if index is not None else []
        chosen = int(number) if number.isdecimal() else 1
        if not 1 <= chosen <= len(blocks):
            count = "1 code block" if len(blocks) == 1 else f"{len(blocks)} code blocks"
            self.app.notify(f"The last answer has {count}.")
            return
        self.app.notify(copy(self.app, blocks[chosen - 1], f"code block {chosen}"))

    def system(self, text: str) -> None:
        dialogue = self.view.dialogue
        if not text:
            current = f"System prompt: {dialogue.system}\n/system off removes it."
            none = "There is no system prompt. Example: /system Be brief."
            self.app.notify(current if dialogue.system else none, timeout=10)
        elif text.lower() == _OFF:
            dialogue.set_system("")
            self.app.notify("System prompt removed.")
        else:
            dialogue.set_system(text)
            self.app.notify("System prompt set.")
