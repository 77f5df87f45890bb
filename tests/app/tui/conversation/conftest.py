"""A chat view alone, on a scripted model, driven by a pilot."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import Event
from typing import Any, cast

import pytest
from textual import on
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, Changes, Turn
from app.engine.engine import Engine
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.in_effect import Preferences
from app.tui.chat.messages import MessageView
from app.tui.chat.view import ChatView
from app.tui.look import register_themes
from app.tui.store import Store
from app.tui.widgets import Wanted
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.small_app import Driven


class ViewApp(App[None]):
    """One chat view, and what it posts."""

    def __init__(self, engine: Engine, history: History | None, chat: int | None = None) -> None:
        super().__init__()
        register_themes(self)
        self.store = Store(Preferences(engine.paths.settings))
        self.changes = Changes()
        dialogue = Dialogue(history)
        if chat is not None:
            dialogue.open(chat)
        answering = Answering(SamplingSettings(temperature=0.0), 100_000)
        self.view = ChatView(
            engine,
            dialogue,
            answering,
            self.store,
            self.changes,
            self._take,
        )
        self.returned: list[str] = []
        self.edits: list[Turn] = []

    def compose(self) -> ComposeResult:
        yield self.view

    @on(Wanted)
    async def _do(self, event: Wanted) -> None:
        arguments = cast("tuple[Any, ...]", event.arguments)
        if event.action == "show_version":
            await self.view.show_version(*reversed(arguments))
        elif event.action == "edit_question":
            self.view.edit_question(*arguments)

    def _take(self, question: Turn, edited: Turn | None) -> None:
        if edited is None:
            self.returned.append(question.text)
        else:
            self.edits.append(edited)
            self.store.edited = edited


class Chat(Driven[ViewApp]):
    """The running view."""

    def __init__(self, app: ViewApp, pilot: Pilot[None], engine: Engine) -> None:
        super().__init__(app, pilot)
        self.engine = engine
        self.view = app.view

    @property
    def messages(self) -> list[MessageView]:
        return self.view.transcript.views

    @property
    def texts(self) -> list[str]:
        return [view.turn.text for view in self.messages]

    async def ready(self) -> None:
        await self.until(lambda: self.engine.status.loaded is not None)

    async def idle(self) -> None:
        """Wait until nothing is asked any more."""
        await self.until(lambda: self.view.is_idle)
        await self.pilot.pause()

    async def ask(self, text: str) -> None:
        """Send a question and wait for the end of its answer."""
        await self.ready()
        await self.view.send(text)
        await self.idle()

    async def begin(self, text: str) -> None:
        """Send a question and wait for the beginning of its answer."""
        await self.ready()
        await self.view.send(text)
        await self.until(self.has_begun)

    def has_begun(self) -> bool:
        last = self.view.dialogue.turns[-1]
        return last.role == ASSISTANT and bool(last.text)


Chatting = Callable[..., AbstractAsyncContextManager[Chat]]


@pytest.fixture
def chatting() -> Chatting:
    """Opens a view: async with chatting(model, size=(80, 24)) as chat."""

    @asynccontextmanager
    async def open_chat(
        model: ScriptedModel,
        size: tuple[int, int] = (80, 24),
        *,
        chat: int | None = None,
        keeps: bool = True,
        loads: bool = True,
    ) -> AsyncIterator[Chat]:
        paths = Paths.of_this_user()
        history = History.open(paths.history) if keeps else None
        engine = Engine(SessionOptions(draft="off"), paths, opened(model))
        app = ViewApp(engine, history, chat)
        if loads:
            engine.start()
        try:
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                yield Chat(app, pilot, engine)
                app.view.abandon()
        finally:
            if isinstance(model.gate, Event):
                model.gate.set()
            if loads:
                engine.close(10.0)
            if history is not None:
                history.close()

    return open_chat
