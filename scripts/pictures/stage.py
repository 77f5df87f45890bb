"""The running app, what a person could do with it, and pictures of its screen."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from textual.screen import Screen

from app.engine.engine import Engine
from app.engine.status import Phase
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.start import AppStart, Preferences
from app.tui.app import SpecchatApp
from app.tui.chat_screen import ChatScreen
from decoding.sampling.settings import SamplingSettings

PATIENCE_SECONDS = 900.0
_LOOK_SECONDS = 0.1
_REST_SECONDS = 0.5

_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_OWN_NAME = re.compile(r"terminal-\d+")


class Stage:
    """The app on the screen, and the pictures taken of it, by name."""

    def __init__(self, app: SpecchatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pictures: dict[str, str] = {}
        self._pilot = pilot

    @property
    def chat(self) -> ChatScreen:
        """The screen of the chat, whatever is in front of it."""
        return next(one for one in self.app.screen_stack if isinstance(one, ChatScreen))

    @property
    def front(self) -> Screen[object]:
        """The screen in front."""
        return self.app.screen

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self._pilot.press(*keys)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the app go on until something holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self._pilot.pause(_LOOK_SECONDS)

    async def loaded(self) -> None:
        """Wait for the model."""
        await self.until(lambda: self.app.engine.status.phase is not Phase.LOADING)

    async def send(self, text: str) -> None:
        """Type a text and send it."""
        self.chat.prompt.write(text)
        await self.press("enter")
        await self._pilot.pause(_REST_SECONDS)

    async def ask(self, question: str) -> None:
        """Ask a question and wait for the end of its answer."""
        await self.send(question)
        await self.answered()

    async def answered(self) -> None:
        """Wait for the end of the answer."""
        await self.until(lambda: self.chat.view.is_idle)
        await self.rest()

    async def rest(self) -> None:
        """Wait until the screen does not change any more."""
        before = ""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while before != (before := self._svg()):
                await self._pilot.pause(_REST_SECONDS)

    async def take(self, name: str, *sizes: tuple[int, int]) -> None:
        """Take a picture of a screen at rest, in one or more sizes; the first has the bare name."""
        for size in sizes:
            await self._pilot.resize_terminal(*size)
            await self.rest()
            self.take_now(name if size == sizes[0] else f"{name}-{size[0]}")

    def take_now(self, name: str) -> None:
        """Take a picture of the screen as it is."""
        self.pictures[name] = self._svg()

    def _svg(self) -> str:
        """The screen in the reader's own fonts; equal screens give equal text."""
        svg = self.app.export_screenshot(title="specchat")
        return _OWN_NAME.sub("terminal", _FONT.sub("", svg))


def paths_in(home: Path) -> Paths:
    """The app's folders in home."""
    return Paths(home / "config", home / "data", home / "cache")


@asynccontextmanager
async def running(model: str | None, home: Path, size: tuple[int, int]) -> AsyncGenerator[Stage]:
    """The app with its folders in home; model: None for the one that a first start uses."""
    paths = paths_in(home)
    history = History.open(paths.history)
    engine = Engine(SessionOptions(model=model), paths)
    answering = Answering(SamplingSettings(), 2048)
    app = SpecchatApp(
        engine, history, AppStart(engine.options, "", answering, Preferences(paths.settings))
    )
    try:
        async with app.run_test(size=size, notifications=False) as pilot:
            stage = Stage(app, pilot)
            await stage.loaded()
            await stage.rest()
            yield stage
    finally:
        engine.close(10.0)
        history.close()
