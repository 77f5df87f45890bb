"""The app on a scripted model, driven by a pilot."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from app.engine.engine import Engine
from app.engine.metrics import Comparison, ReplyMetrics, Standing
from app.history import History
from app.loading.model_list import ListedModel, ModelList
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.in_effect import AppStart, preferences_of, settings_in_effect
from app.tui.app import SpecchatApp
from app.tui.chat.lines import Card
from app.tui.chat.view import ChatView
from app.tui.chat_screen import ChatScreen
from app.tui.prompt.area import PromptArea
from app.tui.store import Live, Second
from decoding.sampling.distribution import SamplingSettings
from decoding.telemetry import DrafterStatistics
from models.metadata.memory_bill import Fit
from tests.fixtures.metrics import LIVE
from tests.fixtures.prompt_app import Prompting, prompting
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.small_app import Driven

WORDS = [f"word{number} " for number in range(30)]
ALL = "".join(WORDS)


def offered(name: str, size: float, *, installed: bool = False) -> ListedModel:
    path = Path(f"{name}.gguf") if installed else None
    return ListedModel(name, round(size), round(size), Fit.FITS, "", path)


MODELS = ModelList(
    (
        offered("demo", 98e6, installed=True),
        offered("qwen3-4b", 2.5e9),
        offered("llama3.2-3b", 2.0e9),
        offered("smollm2-1.7b", 1.1e9),
    ),
    11_000_000_000,
    Path("models"),
    "demo",
)


MINUTE = tuple(
    Second(10 + 5 * abs(second % 20 - 10) / 10, "lookup" if second % 20 < 10 else "ngram")
    for second in range(60)
)


def by_drafter(**judged: tuple[int, int, int]) -> dict[str, DrafterStatistics]:
    """Times that each drafted, and tokens that it drafted and that were accepted."""
    return {name: DrafterStatistics(*counts, 0.01) for name, counts in judged.items()}


DRAFTED = replace(
    LIVE,
    drafted_share=0.58,
    by_drafter=by_drafter(lookup=(12, 74, 62), ngram=(8, 16, 5), retrieval=(1, 2, 0)),
)


def live(metrics: ReplyMetrics, comparison: Comparison = LIVE.comparison) -> Live:
    """Figures of an answer beside those of a session."""
    return Live(
        replace(metrics, comparison=comparison),
        plain=10.1,
        minute=MINUTE,
        session=Comparison(Standing.FASTER, 1.123, 0.03),
        answers=24,
    )


class Chat(Driven[SpecchatApp]):
    """The running app."""

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
        return [(view.turn.role, view.turn.text) for view in self.view.transcript.views]

    @property
    def cards(self) -> str:
        """Errors and warnings below the messages."""
        return "\n".join(card.text for card in self.screen.query(Card))

    @property
    def toasts(self) -> str:
        return "\n".join(one.message for one in self.app._notifications)

    async def ready(self) -> None:
        """Wait until a model is loaded."""
        await self.until(lambda: self.app.engine.status.loaded is not None)

    async def say(self, text: str) -> None:
        """Type a text and send it."""
        self.prompt.text = text
        self.prompt.focus()
        await self.pilot.press("enter")

    async def idle(self) -> None:
        """Wait until nothing is asked any more."""
        await self.until(lambda: self.view.is_idle)
        await self.pilot.pause()

    async def ask(self, text: str) -> None:
        """Send a question and wait for the end of its answer."""
        before = len(self.view.dialogue.turns)
        await self.say(text)
        await self.until(lambda: len(self.view.dialogue.turns) >= before + 2 and self.view.is_idle)


Chatting = Callable[..., AbstractAsyncContextManager[Chat]]


def start(max_tokens: int = 100_000, *, continues: bool = False) -> AppStart:
    """What the app starts with: the settings in the file, and the likeliest token always."""
    paths = Paths.of_this_user()
    settings = settings_in_effect(paths)
    return AppStart(
        SessionOptions(draft="off"),
        "",
        Answering(SamplingSettings(temperature=0.0), max_tokens),
        preferences_of(settings, paths.settings),
        continues,
        settings.notices,
    )


@pytest.fixture(autouse=True)
def _toasts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a test may come to look at them after their five seconds."""
    monkeypatch.setattr(SpecchatApp, "NOTIFICATION_TIMEOUT", 3600.0)


@pytest.fixture
def chatting() -> Chatting:
    """Opens the app: async with chatting(model, size=(80, 24)) as chat.

    options: open what they name in place of the model. continues: whether the last chat opens.
    toasts: whether they are shown. reads_ahead: if not, the model is at work for answers alone.
    """

    @asynccontextmanager
    async def open_chat(
        model: ScriptedModel,
        size: tuple[int, int] = (80, 24),
        *,
        keeps: bool = True,
        toasts: bool = False,
        continues: bool = False,
        reads_ahead: bool = True,
        options: SessionOptions | None = None,
    ) -> AsyncIterator[Chat]:
        paths = Paths.of_this_user()
        history = History(paths.history, repairs=True) if keeps else None
        refusal = "" if reads_ahead else "switched off"
        opens = None if options else opened(model)
        engine = Engine(options or SessionOptions(draft="off"), paths, opens, lambda: refusal)
        app = SpecchatApp(engine, history, start(continues=continues))
        try:
            async with app.run_test(size=size, notifications=toasts) as pilot:
                await pilot.pause()
                yield Chat(app, pilot)
        finally:
            if isinstance(model.gate, Event):
                model.gate.set()
            engine.close(10.0)
            if history is not None:
                history.close()

    return open_chat


@pytest.fixture
async def chat(chatting: Chatting) -> AsyncIterator[Chat]:
    """The app, on a model that answers everything with ALL."""
    async with chatting(ScriptedModel(WORDS)) as opened:
        yield opened


@pytest.fixture
async def prompt() -> AsyncIterator[Prompting]:
    """The prompt in a small app."""
    async with prompting() as opened:
        yield opened
