"""Random keys at random moments in the whole app: nothing typed or said is lost."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from threading import Event, RLock
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from app.chat.unsent import ClearedTexts, ComposerDraft
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, Turn
from app.engine.status import Phase
from app.history import History
from app.paths import Paths
from app.tui.chat.messages import AttachmentRow
from app.tui.chat.view import ChatView
from app.tui.chat_screen import ChatScreen
from app.tui.prompt.area import InputHistory
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.tiny.projector import picture

WORDS = [f"word{number} " for number in range(40)]
KEYS = (
    "ctrl+r", "f9", "f9", "escape", "ctrl+c", "ctrl+z", "ctrl+y", "ctrl+t", "ctrl+n", "up", "down",
    "enter", "tab", "left", "right", "f2",
)  # fmt: skip
PROMPTS = (
    "/anew ", "/anew\n", "/explain ", "/unreadable ", "@notes/ ", "@long.md ", "@gone.pdf ",
    "@cat.png ", "@cat.png ", "@broken.webp ",
)  # fmt: skip
SETTINGS = (
    ("draft", "off"), ("draft", "lookup"), ("draft", "nobody-knows-this"), ("schema", "off"),
    ("schema", "person.json"), ("set", "temperature 0.5"), ("system", "Be brief."),
    ("model", "gone"), ("preset", "editor"), ("preset", "off"), ("preset", "gone"),
    ("preset", "mine"), ("regenerate", "3"), ("regenerate", "3"), ("regenerate", "50"),
    ("think", "on"), ("think", "20"), ("think", "off"), ("folder", "notes"), ("folder", "off"),
    ("folder", "gone"), ("read", "all"), ("read", "all"), ("tools", "files"), ("tools", "off"),
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
        """Type, send, press a key, open a chat, change settings, run a command, load a model."""
        kinds = (
            "send", "send", "type", "key", "key", "key", "chat", "setting", "save", "model",
            "command",
        )  # fmt: skip
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
        elif kind == "save":
            self.chat.screen.commands.settings_editor.save_preset("mine")
        elif kind == "command":
            await self._run()
        elif kind == "model" and self.chance.random() < 0.3:
            self.chat.view.stop()
            self.chat.app.engine.load("scripted")

    async def _type(self) -> None:
        word = f"typed{len(self.typed)}"
        self.typed.add(word)
        area = self.chat.screen.prompt.area
        area.focus()
        area.move_cursor(area.document.end)  # no word is split by another
        is_prompt = not area.text and self.chance.random() < 0.3
        area.insert(f"{self.chance.choice(PROMPTS) if is_prompt else ''}{word} ")

    async def _run(self) -> None:
        """Unfold what is attached, and run a command; its output splits no word."""
        for row in self.chat.screen.query(AttachmentRow):
            await row.action_unfold()
        area = self.chat.prompt
        area.move_cursor(area.document.end)
        await self.chat.screen.action_perform("shell", self.chance.choice(("echo a", "exit 1")))
        await self.chat.until(lambda: not self.chat.screen.commands.is_running)

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


def of_prompt() -> set[str]:
    """Words that are not sent, as the next start finds them: in the prompt, or behind ↑."""
    paths = Paths.of_this_user()
    files = [paths.unsent, paths.cleared]
    return words(" ".join(file.read_text("utf-8") for file in files if file.exists()))


class Watch:
    """Looks after every step of a write whether the disk still has each word that was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: set[str] = set()
        self.lost: set[str] = set()
        self._step = RLock()
        """The prompt is also written in the background: no step moves a word while one looks."""
        for owner, name in (
            (History, "add"),
            (History, "enqueue"),
            (History, "unqueue"),
            (History, "withdraw"),
            (ComposerDraft, "_write"),
            (ClearedTexts, "add"),
        ):
            monkeypatch.setattr(owner, name, self._looking_after(getattr(owner, name)))

    def _looking_after(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **options: Any) -> Any:
            with self._step:
                result = step(*arguments, **options)
                asked = of_history()[0]
                self.sent |= asked
                self.lost |= self.sent - asked - of_prompt()
            return result

        return stepped


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


async def lost(
    chatting: Chatting, seed: int, moments: int, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """What is nowhere any more after a campaign, or was nowhere in between."""
    monkeypatch.setattr("app.chat.unsent._MOST_TEXTS", 1000)
    watch = Watch(monkeypatch)
    Path("person.json").write_text('{"type": "object"}', "utf-8")
    Path("notes").mkdir()
    Path("notes/a.md").write_text("The dog is called Rex.", "utf-8")
    Path("long.md").write_text("The third clause is about the deposit.\n\n" * 2000, "utf-8")
    Path("cat.png").write_bytes(picture(1))
    Path("broken.webp").write_bytes(b"RIFF\0\0\0\0WEBPVP8 ")
    prompts = Paths.of_this_user().prompts
    (prompts / "unreadable.md").mkdir(parents=True)
    (prompts / "anew.md").write_text("Again $1, and then $2", "utf-8")
    model = ScriptedModel(WORDS, rate=150.0, sees=True, shares=True)
    async with chatting(model, (80, 24)) as chat:
        await chat.ready()
        campaign = Campaign(chat, seed)
        await campaign.go(moments)
    asked, answers = of_history()
    missing = sorted(campaign.typed - of_prompt() - campaign.undone - asked)
    unsaid = [
        said for said in campaign.said.values()
        if not any(answer.startswith(said) for answer in answers)
    ]  # fmt: skip
    return [*missing, *unsaid, *watch.lost]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, in which a schema is found."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("seed", "moments"),
    [
        (0, 20),
        pytest.param(1, 70, marks=pytest.mark.slow),
        pytest.param(100, 300, marks=pytest.mark.nightly),
    ],
)
async def test_nothing_typed_or_said_is_lost(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch, seed: int, moments: int
) -> None:
    assert await lost(chatting, seed, moments, monkeypatch) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["typed", "said"])
async def test_a_loss_is_found(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "typed":
        monkeypatch.setattr(ChatView, "send", AsyncMock())
        monkeypatch.setattr(InputHistory, "remember", Mock(return_value=[]))
    else:
        monkeypatch.setattr(Dialogue, "save", Mock())
    assert await lost(chatting, 1, 20, monkeypatch) != []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "is_kept"), [("new", True), ("edit", True), ("queued", True), ("new", False)]
)
async def test_a_question_on_its_way_back_to_the_prompt_is_on_the_disk(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch, way: str, is_kept: bool
) -> None:
    gate = Event()
    gate.set()
    async with chatting(ScriptedModel(WORDS, gate=gate), reads_ahead=False) as chat:
        await chat.ask("first")
        watch = Watch(monkeypatch)
        monkeypatch.setattr(ComposerDraft, "keep_soon", Mock())  # it would be too late, or not
        if not is_kept:
            monkeypatch.setattr(ChatScreen, "_keep_unsent", Mock())
        gate.clear()
        if way == "queued":
            await chat.say("what is answered")
            await chat.until(lambda: not chat.view.is_idle)
        if way == "edit":
            await chat.pilot.press("f9")
        await chat.say("typed0")
        await chat.until(lambda: "typed0" in watch.sent and not of_prompt())
        await chat.pilot.press("up" if way == "queued" else "escape")
        gate.set()
        await chat.until(lambda: chat.prompt.text == "typed0" and chat.view.is_idle)
        assert watch.lost == (set() if is_kept else {"typed0"})
        await chat.pilot.press("ctrl+z")
        assert chat.prompt.text == "typed0"


async def test_a_question_on_its_way_to_the_chat_is_kept_at_the_end(chat: Chat) -> None:
    await chat.ready()
    chat.prompt.text = "typed0"
    chat.prompt._handle("enter")
    assert chat.prompt.text == ""  # the screen has not heard of it yet
    chat.screen._keep_unsent()
    assert of_prompt() == {"typed0"}
    await chat.until(lambda: all(one.text == "" for one in chat.prompt.unsent))
    assert of_history()[0] == {"typed0"}
    chat.screen._keep_unsent()
    assert of_prompt() == set()


async def test_an_edit_that_is_left_comes_back_after_a_start(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("first")
        await chat.pilot.press("f9")
        await chat.until(lambda: chat.prompt.text == "first")
        chat.prompt.text = "typed0"
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.prompt.text == "")
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.pilot.press("up")
        assert chat.prompt.text == "typed0"
