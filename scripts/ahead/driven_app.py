"""The whole app on a real model, without a terminal, typed into at a given speed."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from textual import events
from textual.pilot import Pilot

from app.ahead.permission import Permission
from app.builtin_prompts import built_in_prompts
from app.engine.answer import Answer
from app.engine.engine import Engine
from app.history.store import open_history
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.start import AppStart, Preferences
from app.tui.app import SpecchatApp
from app.tui.chat_screen import ChatScreen
from decoding.sampling.settings import SamplingSettings

PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 0.002
_LAST_TOKENS = 40
"""Of a prompt: the last word, and what the template has behind it."""

_MOST_TOKENS = 16
"""Of an answer: only its beginning is measured."""


_WORDS = " ".join(prompt.text for prompt in built_in_prompts()).split()


@dataclass(frozen=True, slots=True)
class Begun:
    """How an answer began. seconds: from Enter to its first token; ttft: from the request."""

    seconds: float
    ttft: float
    prompt: int
    cached: int
    """Tokens of the prompt that were there before Enter."""
    ahead: int
    """Those of them that were read ahead, and not for an earlier answer."""

    def __str__(self) -> str:
        return (
            f"{self.seconds:.2f} s ({self.ttft:.2f} s from the request), "
            f"{self.cached:,} of {self.prompt:,} tokens there before, {self.ahead:,} read ahead"
        )


class DrivenApp:
    """The running app."""

    def __init__(self, app: SpecchatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def engine(self) -> Engine:
        """Its engine."""
        return self.app.engine

    @property
    def screen(self) -> ChatScreen:
        """Its chat."""
        return cast(ChatScreen, self.app.screen)

    def has_read(self, tokens: int) -> bool:
        """Whether a prompt of about so many tokens is read but for its last words."""
        state = self.engine.status.ahead
        if state is None or state.read < 0.9 * tokens:
            return False
        return state.total - state.read < _LAST_TOKENS

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the app go on until something holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await asyncio.sleep(_LOOK_SECONDS)

    async def ready(self) -> None:
        """Wait until the model is loaded."""
        await self.until(lambda: self.engine.status.loaded is not None)
        await self.pilot.pause()

    async def type(self, text: str, seconds: float) -> None:
        """Type a text, at an even speed, in so many seconds."""
        begun, area = time.perf_counter(), self.screen.prompt.area
        for number, character in enumerate(text):
            due = begun + seconds * number / len(text)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            area.insert(character)
        await asyncio.sleep(max(0.0, begun + seconds - time.perf_counter()))

    async def send(self) -> Begun:
        """Press Enter, and wait for the end of the answer, which is cut short."""
        view = self.screen.view
        pressed = time.perf_counter()
        self.screen.prompt.area.post_message(events.Key("enter", "\r"))
        await self.until(lambda: view.pending is not None)
        assert view.pending is not None
        answer = view.pending.answer
        await self.until(lambda: bool(answer.token_ids) or answer.is_done)
        seconds = time.perf_counter() - pressed
        await self.until(lambda: answer.is_done and view.is_idle)
        return _begun(answer, seconds)

    async def file_of(self, tokens: int, folder: Path, seed: int = 0) -> Path:
        """Write a text file of about so many tokens."""
        words = [_WORDS[(place * place + seed) % len(_WORDS)] for place in range(tokens)]
        counted = await asyncio.wrap_future(self.engine.count(" ".join(words)))
        words = words[: round(len(words) * tokens / counted)]
        path = folder / f"words{seed}.txt"
        path.write_text(" ".join(words), encoding="utf-8")
        return path


@asynccontextmanager
async def driven(
    model: Path, ahead: str, *, continues: bool = False, most_tokens: int = _MOST_TOKENS
) -> AsyncGenerator[DrivenApp]:
    """Run the app; ahead: the setting. continues: whether the last chat opens."""
    paths, permission = Paths.of_this_user(), Permission(ahead)
    options = SessionOptions(str(model))
    engine = Engine(options, paths, None, permission, permission.most_waste)
    answering = Answering(SamplingSettings(temperature=0.0), most_tokens)
    preferences = Preferences(paths.settings, animations=False, ahead=ahead)
    history = open_history(paths)
    start = AppStart(options, "", answering, preferences, continues)
    app = SpecchatApp(engine, history, start, permission=permission)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            shown = DrivenApp(app, pilot)
            await shown.ready()
            yield shown
            shown.screen.view.abandon()
            await pilot.pause()
    finally:
        engine.close(PATIENCE_SECONDS)
        history.close()


def _begun(answer: Answer, seconds: float) -> Begun:
    metrics = answer.metrics
    if answer.error is not None or metrics is None or metrics.ttft_seconds is None:
        raise RuntimeError(f"there was no answer: {answer.error}")
    counts = metrics.prompt_tokens, metrics.cached_prompt_tokens, metrics.ahead_tokens
    return Begun(seconds, metrics.ttft_seconds, *counts)
