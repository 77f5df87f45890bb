"""Random keys at random moments in the whole app: nothing typed or said is lost."""

import random
import re
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from app.dialogue.dialogue import Dialogue
from app.dialogue.turn import ASSISTANT, Turn
from app.engine.engine_status import Phase
from app.history import History
from app.paths import Paths
from app.tui.conversation.chat_view import ChatView
from app.tui.prompt.input_history import InputHistory
from app.tui.prompt.prompt_area import PromptArea
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = [f"word{number} " for number in range(40)]
KEYS = (
    "ctrl+r", "f9", "f9", "escape", "ctrl+c", "ctrl+z", "ctrl+y", "ctrl+t", "ctrl+n", "up", "down",
    "enter", "tab", "left", "right", "f2",
)  # fmt: skip
SETTINGS = (
    ("draft", "off"), ("draft", "lookup"), ("draft", "nobody-knows-this"), ("schema", "off"),
    ("schema", "person.json"), ("set", "temperature 0.5"), ("system", "Be brief."),
    ("model", "gone"),
)  # fmt: skip


class Campaign:
    """Acts at random, and keeps what was typed and what was said."""

    def __init__(self, chat: Chat, seed: int) -> None:
        self.chat = chat
        self.chance = random.Random(seed)
        self.typed: set[str] = set()
        self.undone: set[str] = set()
        """Words that Ctrl+Z took out of the prompt."""
        self.said: dict[Turn, str] = {}

    async def go(self, moments: int) -> None:
        """Act at so many moments."""
        for _ in range(moments):
            await self.act()
            await self.chat.pilot.pause(self.chance.choice((0.0, 0.01, 0.05, 0.12)))
            self._look()
        await self.chat.until(lambda: self.chat.app.engine.status.phase is Phase.READY)
        await self.chat.pilot.pause()

    async def act(self) -> None:
        """Type, send, press a key, open a chat, change a setting or load the model again."""
        kinds = ("send", "send", "type", "key", "key", "key", "chat", "setting", "model")
        kind = self.chance.choice(kinds)
        if kind in ("send", "type"):
            await self._type()
        if kind == "send":
            await self.chat.pilot.press("enter")
        elif kind == "key":
            await self._press(self.chance.choice(KEYS))
        elif kind == "chat":
            await self._open()
        elif kind == "setting":
            await self.chat.screen.action_perform(*self.chance.choice(SETTINGS))
        elif kind == "model" and self.chance.random() < 0.3:
            self.chat.view.stop()
            self.chat.app.engine.load("scripted")

    async def _type(self) -> None:
        word = f"typed{len(self.typed)}"
        self.typed.add(word)
        area = self.chat.screen.prompt.area
        area.focus()
        area.move_cursor(area.document.end)  # no word is split by another
        self.chat.screen.prompt.insert(f"{word} ")

    async def _press(self, key: str) -> None:
        area = self.chat.prompt
        if key == "ctrl+c" and not (area.text or self.chat.screen.store.is_answering):
            return  # it would quit
        before = area.text
        await self.chat.pilot.press(key)
        if key in ("ctrl+z", "ctrl+y"):
            self.undone |= words(before) - words(area.text)

    async def _open(self) -> None:
        history = self.chat.view.dialogue.history
        assert history is not None
        if chats := history.chats():
            number = self.chance.choice(chats).number
            await self.chat.screen.action_perform("chats", str(number))

    def _look(self) -> None:
        for view in self.chat.view.transcript.views:
            if view.turn.role == ASSISTANT and view.turn.text:
                assert view.turn.text.startswith(self.said.get(view.turn, ""))
                self.said[view.turn] = view.turn.text


def words(text: str) -> set[str]:
    return set(re.findall(r"typed\d+", text))


def of_prompt(area: PromptArea) -> set[str]:
    """What the prompt still has: on the screen, behind ↑, or an undo away."""
    texts = [one.text for one in (*area.unsent, *area.earlier)]
    for batch in (*area.history.undo_stack, *area.history.redo_stack):
        for edit in batch:
            replaced = edit._edit_result.replaced_text if edit._edit_result else ""
            texts += [edit.text, replaced]
    return words(" ".join(texts))


def of_history() -> tuple[set[str], list[str]]:
    """Words of all questions, sent and queued, and all answers."""
    history = History.open(Paths.of_this_user().history)
    questions, answers = list[str](), list[str]()
    for chat in history.chats():
        for message in history.messages(chat.number):
            (answers if message.role == ASSISTANT else questions).append(message.text)
        questions += [queued.text for queued in history.queue(chat.number)]
    history.close()
    return words(" ".join(questions)), answers


async def lost(chatting: Chatting, seed: int, moments: int) -> list[str]:
    """What is nowhere any more after a campaign."""
    Path("person.json").write_text('{"type": "object"}', "utf-8")
    model = ScriptedModel(WORDS, rate=150.0)
    async with chatting(model, (80, 24)) as chat:
        await chat.ready()
        campaign = Campaign(chat, seed)
        await campaign.go(moments)
        kept = of_prompt(chat.prompt) | campaign.undone
    asked, answers = of_history()
    missing = sorted(campaign.typed - kept - asked)
    unsaid = [
        said for said in campaign.said.values()
        if not any(answer.startswith(said) for answer in answers)
    ]  # fmt: skip
    return [*missing, *unsaid]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, in which a schema is found."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_typed_or_said_is_lost(chatting: Chatting, seed: int) -> None:
    assert await lost(chatting, seed, 20) == []


@pytest.mark.slow
async def test_nothing_is_lost_at_many_moments(chatting: Chatting) -> None:
    assert await lost(chatting, 100, 300) == []


@pytest.mark.parametrize("kind", ["typed", "said"])
async def test_a_loss_is_found(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "typed":
        monkeypatch.setattr(ChatView, "send", AsyncMock())
        monkeypatch.setattr(InputHistory, "remember", Mock())
    else:
        monkeypatch.setattr(Dialogue, "save", Mock())
    assert await lost(chatting, 1, 20) != []
