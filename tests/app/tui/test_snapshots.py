"""What whole screens look like, in files a person can read and compare."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.widgets import Collapsible

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.conversation import Conversation
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, USER, Turn
from app.engine.answer import Answer, Stage
from app.engine.metrics import Comparison, Standing
from app.engine.reply import Request
from app.engine.status import Loaded, Phase, Status
from app.tui.chat.answer import AnswerView
from app.tui.chat.pending import PendingAnswer
from app.tui.chat.view import ChatView
from app.tui.chat_screen import ChatScreen
from app.tui.store import Live
from app.wording import relative_time
from decoding.sampling.distribution import SamplingSettings
from models.reference import Reference
from tests.app.tui.conftest import DRAFTED, MODELS, Chat, Chatting, by_drafter, live
from tests.fixtures.metrics import LIVE
from tests.fixtures.screen_text import settled_text
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.sessions import give
from tests.fixtures.snapshots import FOLDER, compare_snapshot

SIZES = ((120, 36), (80, 24), (40, 20))
HOUR = 3600.0
TITLES = ("Correct the spelling of letter.md", "A rate limiter in Go", "Names for a sailing boat")

LETTER = """\
Dear Ms Lindqvist,

thank you for your letter of the third of April. The weather here is often rainy, so it is wise \
to bring an umbrella when you come. From the station you walk along the river for ten minutes; \
our house is the one with the green door. We are at home from four on, and there will be tea. If \
the train is late, do not hurry: the kettle can wait.

We look forward to your visit. In May the weather gets better, and you can leave the umbrella \
at home"""
CODE = """\
```python
changed = {"wether": "weather", "Aprill": "April", "offen": "often", "umbrela": "umbrella"}
```"""
SUMMARY = """\
1. Sales grew by a tenth, most of it in the north.
2. The new plant opened late and over budget, and runs at half its capacity.
3. Two of the five largest customers left for a cheaper rival.
4. The board wants to close the southern office"""


def file(name: str, tokens: int) -> Attachment:
    return Attachment(AttachmentKind.FILE, name, "x" * tokens)  # a character is a token


INFO = replace(
    LIVE.model,
    name="qwen3-4b",
    device="CPU: 8 threads",
    threads=8,
    bytes_read_per_token=100_000_000,
)
ANSWERING = replace(DRAFTED, context_used=720, completion_tokens=116)
SHORT = Comparison(Standing.SHORT)
EVEN = Comparison(Standing.EVEN, 1.03, 0.09)


def status(name: str = "qwen3-4b") -> Status:
    loaded = Loaded(Reference(name, INFO.path), INFO, 8192, (), "", (), 1.0, 25e9, 250.0)
    return Status(Phase.READY, "", loaded)


_REQUEST = Request(Conversation(), SamplingSettings(), 100)


class Still:
    """The app with nothing going on: a test says what the engine does, in the store."""

    def __init__(self, chat: Chat, config: pytest.Config) -> None:
        self.chat = chat
        self.store = chat.screen.store
        self.view = chat.view
        self.dialogue = Dialogue(None)
        self._config = config

    def say(self, question: str, answer: str, ending: str = "", *files: Attachment) -> Turn:
        self.dialogue.add(USER, question, files)
        turn = self.dialogue.add(ASSISTANT, answer)
        turn.ending, turn.is_growing = ending, False
        return turn

    async def open(self) -> None:
        await self.view.open(self.dialogue)
        self.chat.screen.writer.write_chat()
        await self.chat.pilot.pause()

    async def answers(self, turn: Turn, drafted: str, figures: Live) -> None:
        """Have an answer be in progress, the end of which was drafted."""
        turn.is_growing = True
        view = self.view.transcript.view_of(turn)
        assert isinstance(view, AnswerView)
        answer = Answer(replace(_REQUEST, partial=turn.text))
        give(answer.reply, (drafted, "lookup"))
        turn.text += drafted
        view.grow(answer.reply)
        view.paint()
        answer.stage = Stage.ANSWERING  # else it soon says that it reads
        answer.metrics = figures.metrics
        self.view.growing[:] = [PendingAnswer(self.view.dialogue, answer, turn)]
        await self.figures(figures)

    async def figures(self, figures: Live, newest: Turn | None = None) -> None:
        self.store.live = figures
        if newest is not None:
            self.view._answers[newest] = Answer(_REQUEST)
        self.chat.screen.writer.write_chat()
        self.view._refresh_views()
        await self.chat.pilot.pause()

    async def compare(self, name: str) -> None:
        """Compare the screen, once it no longer changes, with a snapshot for its size."""
        await self.view.transcript.show_end()
        width, height = self.chat.app.size
        shown = await settled_text(self.chat.pilot)
        compare_snapshot(self._config, f"screen_{name}_{width}x{height}", shown)


StillApp = Callable[..., AbstractAsyncContextManager[Still]]


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def still(
    request: pytest.FixtureRequest,
    chatting: Chatting,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> StillApp:
    """Opens the app with a model loaded: async with still() as app."""

    async def nothing(_self: object) -> None: ...

    @asynccontextmanager
    async def open_still(model: str = "qwen3-4b") -> AsyncIterator[Still]:
        async with chatting(ScriptedModel(["a"]), request.param, keeps=False) as chat:
            await chat.ready()
            await chat.pilot.pause(0.2)
            with monkeypatch.context() as patch:
                patch.setattr(ChatScreen, "_update", nothing)
                patch.setattr(ChatView, "_update", nothing)
                for timed in (chat.screen, chat.view):
                    for timer in timed._timers:
                        timer.pause()
                await chat.pilot.pause()  # for what the timers wanted just before
                chat.screen.store.status = status(model)
                chat.screen.store.drafting = "auto"
                yield Still(chat, pytestconfig)
                chat.view.growing.clear()

    return open_still


@pytest.fixture
async def app(still: StillApp) -> AsyncIterator[Still]:
    async with still() as opened:
        yield opened


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tui.welcome.models_here", lambda _engine: MODELS)


AFTERNOON = datetime(2026, 11, 22, 15, 30).timestamp()


def at_rate(rate: float, comparison: Comparison = LIVE.comparison, **figures: Any) -> Live:
    metrics = replace(ANSWERING, decode_tokens_per_second=rate, **figures)
    return live(metrics, comparison)


def last_chats(_history: object) -> list[SimpleNamespace]:
    """Chats of the last days."""
    ages = (2.1 * HOUR, 26 * HOUR, 26 * HOUR)
    return [
        SimpleNamespace(number=number, title=title, updated=AFTERNOON - age)
        for number, (title, age) in enumerate(zip(TITLES, ages, strict=True), 1)
    ]


def letter(app: Still, ending: str, text: str = LETTER) -> Turn:
    app.dialogue.set_system("Answer with the text alone.")
    question = "Correct the spelling of @letter.md"
    return app.say(question, text, ending, file("letter.md", 148))


async def finished(app: Still) -> Turn:
    letter(app, "132 tokens · 9.4 s · 14 tok/s · 1.4× plain ± 0.1 · 61 % drafted", f"{LETTER}.")
    app.say("Which words did you change?", "Four.", "2 tokens · 0.2 s")
    app.dialogue.add_version(app.dialogue.turns[2], "Which words did you change? As Python.")
    newest = app.dialogue.add(ASSISTANT, CODE)
    newest.ending = "58 tokens · 4.4 s · 13 tok/s · 52 % drafted"
    await app.open()
    drafted = by_drafter(lookup=(8, 36, 28), ngram=(4, 9, 2), retrieval=(1, 1, 0))
    figures = at_rate(
        13.2, SHORT, context_used=901, completion_tokens=58, drafted_share=0.52, by_drafter=drafted
    )
    await app.figures(figures, newest)
    return newest


async def test_idle(still: StillApp, monkeypatch: pytest.MonkeyPatch) -> None:
    at_that_time = partial(relative_time, now=AFTERNOON)
    monkeypatch.setattr("app.tui.welcome._last_chats", last_chats)
    monkeypatch.setattr("app.tui.welcome.relative_time", at_that_time)
    async with still() as app:
        await app.compare("idle")


async def test_the_first_run(still: StillApp) -> None:
    async with still("demo") as app:
        await app.chat.until("smollm2")
        await app.compare("first_run")
        app.store.downloads = {"qwen3-4b": "34 %, 2 min left"}
        await app.compare("first_download")


@pytest.mark.slow
async def test_answering(app: Still) -> None:
    start, drafted = LETTER[:-20], LETTER[-20:]
    turn = letter(app, "", start)
    await app.open()
    await app.answers(turn, drafted, at_rate(14.2))
    await app.compare("answering")
    if app.chat.app.size.width < 110:
        await app.chat.pilot.press("f2")
        await app.chat.until("of 74")  # it is laid out before its end is looked for
        await app.compare("answering_with_panel")


@pytest.mark.slow
async def test_finished(app: Still) -> None:
    await finished(app)
    await app.compare("finished")
    if app.chat.app.size.width < 110:
        await app.chat.pilot.press("f2")
    await app.chat.pilot.press("f2")
    await app.compare("details")


@pytest.mark.slow
async def test_editing(app: Still) -> None:
    await finished(app)
    before = app.chat.shown
    await app.chat.pilot.press("f9")
    await app.chat.pilot.pause()
    await app.compare("editing")
    await app.chat.pilot.press("escape")
    await app.chat.pilot.pause()
    await app.chat.until(lambda: app.chat.shown == before)


async def test_sources(app: Still) -> None:
    passages = [
        Attachment(AttachmentKind.PASSAGE, f"[{number}] {place}", "x" * tokens)
        for number, place, tokens in (
            (1, "harbour/minutes/2026-03.md, lines 12 to 40", 148),
            (2, "harbour/report.pdf, page 7", 96),
        )
    ]
    answer = "The quay opens at eight [1], and on Sundays at nine [2]; the crane does not [7]."
    app.say("When does the quay open?", answer, "24 tokens · 1.7 s", *passages)
    await app.open()
    await app.figures(at_rate(14.2), app.dialogue.turns[-1])
    await app.compare("sources_folded")
    app.chat.screen.query_one(Collapsible).collapsed = False
    await app.chat.until("[2] harbour/report.pdf")
    await app.chat.app.workers.wait_for_complete()
    await app.compare("sources")


async def test_a_queue(app: Still) -> None:
    turn = app.say("Summarise @report.md in five lines", SUMMARY[:60], "", file("report.md", 3204))
    app.dialogue.enqueue("What does it leave out?")
    app.dialogue.enqueue("Compare it with [pasted 42 lines]")
    await app.open()
    figures = at_rate(12.1, SHORT, context_used=3350, completion_tokens=31, drafted_share=0.44)
    await app.answers(turn, SUMMARY[60:85], figures)
    app.chat.prompt.text = "And check @nots.md"
    await app.chat.pilot.press("enter")
    await app.compare("queue")


async def test_a_queue_behind_a_stopped_answer(app: Still) -> None:
    ending = "even with plain ± 9 % · 23 % drafted · stopped after 71 tokens · Ctrl+T continues"
    turn = app.say(
        "Summarise @report.md in five lines", SUMMARY, f"10 tok/s · {ending}",
        file("report.md", 3204),
    )  # fmt: skip
    app.dialogue.enqueue("What does it leave out?")
    app.dialogue.enqueue("Compare it with [pasted 42 lines]")
    await app.open()
    drafted = by_drafter(lookup=(8, 21, 13), ngram=(4, 14, 3), retrieval=(1, 1, 0))
    figures = at_rate(10.3, EVEN, context_used=3440, drafted_share=0.23, by_drafter=drafted)
    await app.figures(figures, turn)
    await app.compare("stopped")


async def test_no_model(app: Still) -> None:
    app.store.status = Status(Phase.FAILED)
    app.chat.app.engine._status = app.store.status
    await app.open()
    await app.view.show_fault(
        "mine.gguf cannot be loaded: the file is incomplete (1.1 of 2.5 GB).",
        "Enter tries again · Ctrl+L chooses another",
    )
    await app.view.send("Why is the sky blue?")
    app.chat.screen.writer.write_chat()
    await app.compare("no_model")


@pytest.mark.slow
async def test_errors(app: Still) -> None:
    app.say("Why is the sky blue?", "Sunlight is scattered by the air. Short waves")
    turn = app.say("And why is it red at dusk?", "Then light travels further through the")
    app.dialogue.fault = "the disk is full"
    await app.open()
    await app.view.show_fault(
        "The model stopped: 0.3 GB more memory is needed.",
        "Ctrl+T continues · Ctrl+L smaller model",
    )
    app.view._faulted = turn
    app.view._refresh_views()
    await app.compare("errors")


# A figure stands on a screen once.

_FIGURES = (
    r"\d tok/s", r"× plain", r"even with plain", r"slower than plain", r"% drafted",
    r"tok/s", r"queued · 1\b", r"✕ ", r"▲ not saved", r"last minute", r"too short to compare",
    r"drafting: ", r"min left", r"context \d+ %",
)  # fmt: skip


_FINISHED = re.compile(r"^ +(▌ .* )?[\d,]+ tokens · [\d.]+ s.*(\n +[^ ▌].*)*", re.MULTILINE)
"""The figures of a finished answer, which may wrap: each has its own."""

_OTHERS = re.compile(r"this session.*|(about |~)\d+ tok/s|10 tok/s is about")
"""Figures of all answers together, and of models that are not there yet."""


def twice(screen: str) -> list[str]:
    """Figures and facts that a screen tells twice; those of earlier answers are others."""
    left = "\n".join(line.partition("│ ")[0] for line in screen.splitlines())
    right = "\n".join(line.partition("│ ")[2] for line in screen.splitlines())
    kept = _OTHERS.sub("", _FINISHED.sub("", left) + right)
    return [figure for figure in _FIGURES if len(re.findall(figure, kept)) > 1]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("screen_*.txt")), ids=lambda path: path.stem)
def test_no_figure_stands_on_a_screen_twice(path: Path) -> None:
    assert twice(path.read_text(encoding="utf-8")) == []


def test_a_figure_that_stands_twice_is_found() -> None:
    assert twice("14 tok/s · 58 % drafted\n\n58 % drafted") == ["% drafted"]
    assert twice("  132 tokens · 9.4 s · 14 tok/s\n\n13 tok/s") == []
