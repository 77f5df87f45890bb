"""The app on a scripted model, driven by a pilot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from app.engine.engine import Engine
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui.app import SpecchatApp
from app.tui.chat_screen import ChatScreen
from app.tui.conversation.chat_view import ChatView
from app.tui.prompt.prompt_area import PromptArea
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.screen_text import screen_text
from tests.fixtures.scripted import ScriptedModel, opened

PATIENCE_SECONDS = 60.0
SNAPSHOTS = Path(__file__).with_name("snapshots")


class Chat:
    """The running app, driven by a test."""

    def __init__(self, app: SpecchatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def screen(self) -> ChatScreen:
        return next(one for one in self.app.screen_stack if isinstance(one, ChatScreen))

    @property
    def view(self) -> ChatView:
        return self.screen.view

    @property
    def prompt(self) -> PromptArea:
        return self.screen.query_one(PromptArea)

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Roles and texts on the screen."""
        return [(message.role, message.text) for message in self.view.transcript.messages]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the app go on until something holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self.pilot.pause(0.02)

    async def say(self, text: str) -> None:
        """Type a text and send it."""
        self.prompt.text = text
        self.prompt.focus()
        await self.pilot.press("enter")

    async def ask(self, text: str) -> None:
        """Send a question and wait for the end of its answer."""
        before = len(self.texts)
        await self.say(text)
        await self.until(lambda: len(self.texts) >= before + 2 and self.view.pending is None)


Chatting = Callable[..., AbstractAsyncContextManager[Chat]]


@pytest.fixture
def chatting() -> Chatting:
    """Opens the app: async with chatting(model, size=(80, 24)) as chat.

    toasts: whether they are shown; they cover a part of the screen.
    """

    @asynccontextmanager
    async def open_chat(
        model: ScriptedModel,
        size: tuple[int, int] = (80, 24),
        *,
        keeps: bool = True,
        toasts: bool = False,
    ) -> AsyncIterator[Chat]:
        paths = Paths.of_this_user()
        history = History.open(paths.history) if keeps else None
        engine = Engine(SessionOptions(draft="off"), paths, opened(model))
        settings = SamplingSettings(temperature=0.0)
        app = SpecchatApp(engine, history, "", settings, 100_000)
        try:
            async with app.run_test(size=size, notifications=toasts) as pilot:
                await pilot.pause()
                yield Chat(app, pilot)
        finally:
            if model.gate is not None:
                model.gate.set()
            engine.close(10.0)
            if history is not None:
                history.close()

    return open_chat


Snapshot = Callable[[Chat, str], None]


@pytest.fixture
def snapshot(pytestconfig: pytest.Config) -> Snapshot:
    """Compares the screen with a file: snapshot(chat, name)."""

    def compare(chat: Chat, name: str) -> None:
        file = SNAPSHOTS / f"{name}.txt"
        shown = screen_text(chat.app)
        if pytestconfig.getoption("--update-snapshots"):
            file.write_text(shown, encoding="utf-8")
        assert shown == file.read_text(encoding="utf-8")

    return compare
