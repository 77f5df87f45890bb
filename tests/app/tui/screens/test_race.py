"""A race: its clocks, its one text, its verdict, and its keys at any moment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from app.chat.conversation import Conversation
from app.drafting.choose.drafter_info import Ranking
from app.engine.answer import Answer, Stage
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.status import Loaded, Phase, Status
from app.paths import Paths
from app.tui.screens.drafters import DraftersScreen
from app.tui.screens.race import RaceScreen, first_difference
from backends.base import ModelError
from decoding.events import Step
from decoding.sampling.distribution import SamplingSettings
from models.reference import Reference
from tests.fixtures.metrics import LIVE
from tests.fixtures.sessions import new_reply
from tests.fixtures.small_app import Shown, compare_screen, small_app

TEXT = (
    "The limiter keeps a bucket for each client. A request takes a token out of it; a ticker puts "
    "tokens back at a fixed rate. When the bucket is empty, the request is turned away, with the "
    "time to wait."
)
SIZES = [(120, 36), (80, 24), (40, 20)]
LOADED = Loaded(Reference("qwen3-4b", LIVE.model.path), LIVE.model, 8192, (), "", (), 0.0, None)


class PreparedEngine:
    """Takes requests, and answers when the test says so."""

    def __init__(self) -> None:
        self.paths = Paths.of_this_user()
        self.status = Status(Phase.READY, "", LOADED)
        self.draft = "auto"
        self.asked: list[Answer] = []
        self.followed: list[str] = []

    def ask(self, request: Request) -> Answer:
        self.asked.append(Answer(request))
        return self.asked[-1]

    def set_draft(self, spec: str) -> None:
        self.followed.append(spec)

    def drafters(self) -> Ranking | None:
        return None

    def rank(self) -> Any:
        raise AssertionError("nothing is measured while a race runs")


def grow(answer: Answer, text: str, seconds: float, *, tokens: int = 0, accepted: int = 0) -> None:
    """Let an answer have so much text after so many seconds of decoding."""
    reply = new_reply()
    tokens = tokens or len(text.split())
    reply.text, reply.token_ids = text, list(range(tokens))
    for count, at in ((1, 0.0), (tokens - 1, seconds)):
        reply.statistics.add(Step((0,) * count, "", 0, 0, 0.0, 0.0, 0.0, at))
    answer.reply = reply
    answer.stage = Stage.ANSWERING
    by_drafter = LIVE.by_drafter if accepted else {}
    answer.metrics = replace(
        LIVE, decode_seconds=seconds, decode_tokens_per_second=(tokens - 1) / seconds,
        drafted=accepted, accepted=accepted, by_drafter=by_drafter,
    )  # fmt: skip


class Racing(Shown):
    """The race on the screen of a small app."""

    def __init__(self, shown: Shown, engine: PreparedEngine) -> None:
        super().__init__(shown.app, shown.pilot)
        self.engine = engine

    @property
    def plain(self) -> Answer:
        return self.engine.asked[-2]

    @property
    def drafted(self) -> Answer:
        return self.engine.asked[-1]

    async def end(
        self, plain: str = TEXT, drafted: str = TEXT, tokens: int = 214, accepted: int = 120
    ) -> None:
        grow(self.plain, plain, 21.2, tokens=tokens)
        self.plain.finish()
        grow(self.drafted, drafted, 15.1, tokens=tokens, accepted=accepted)
        self.drafted.finish()
        await self.until("15.1 s")
        await self.pilot.pause()


@asynccontextmanager
async def race(
    size: tuple[int, int] = (80, 24), temperature: float = 0.0, draft: str | None = None
) -> AsyncIterator[Racing]:
    engine = PreparedEngine()
    settings = SamplingSettings(temperature=temperature)
    request = Request(Conversation(), settings, 300)
    async with small_app(size) as shown:
        racing = Racing(shown, engine)
        screen = RaceScreen(
            shown.app.store, cast(Engine, engine), "A rate limiter in Go", request, draft
        )
        await racing.open(screen)
        yield racing


@pytest.fixture
async def racing() -> AsyncIterator[Racing]:
    async with race() as opened:
        yield opened


@pytest.mark.parametrize("size", SIZES)
async def test_the_end_at_every_size(size: tuple[int, int], pytestconfig: pytest.Config) -> None:
    async with race(size) as racing:
        await racing.end()
        compare_screen(racing.app, f"race_{size[0]}x{size[1]}", pytestconfig)


async def test_both_answers_get_the_same_question_and_other_drafters() -> None:
    async with race(draft="lookup") as racing:
        assert [answer.request.draft for answer in racing.engine.asked] == ["off", "lookup"]
        one, other = (answer.request.conversation for answer in racing.engine.asked)
        assert one == other
        assert one is not other  # each may drop turns of its own


@pytest.mark.slow
async def test_bars_grow_while_it_runs(racing: Racing) -> None:
    assert racing.text.count("waiting") == 2
    lengths: list[int] = []
    for seconds in (2.0, 8.0, 21.2):
        grow(racing.plain, TEXT, seconds, tokens=100)
        await racing.until(f"{seconds} s")
        lengths.append(racing.text.count("█"))
    assert lengths == sorted(set(lengths))
    racing.plain.finish()
    grow(racing.drafted, TEXT[:40], 1.0, tokens=100, accepted=1)
    await racing.until("1.0 s")
    assert "time to wait." in racing.text  # the text stays


@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "words"),
    [
        (0.0, "same up to word 24, then a tie; `specchat verify` checks"),
        (0.8, "unequal texts, drawn at temperature 0.8: 214 and 214 tokens"),
    ],
)
async def test_texts_that_differ_are_both_shown_from_there_on(
    temperature: float, words: str
) -> None:
    async with race((120, 24), temperature) as racing:
        await racing.end(drafted=TEXT.replace("rate. When the", "speed, and"))
        assert words in racing.text
        assert "keeps a bucket" not in racing.text
        line = next(line for line in racing.text.splitlines() if "… rate." in line)
        assert "… speed, and" in line  # side by side
        await racing.pilot.resize_terminal(60, 30)
        await racing.pilot.pause()
        line = next(line for line in racing.text.splitlines() if "… rate." in line)
        assert "… speed" not in line


async def test_what_noise_explains_is_even_and_short_answers_are_not_compared() -> None:
    async with race((120, 24)) as racing:
        grow(racing.plain, TEXT, 15.0, tokens=214)
        grow(racing.drafted, TEXT, 15.1, tokens=214, accepted=9)
        for answer in racing.engine.asked:
            answer.finish()
        await racing.until("even with plain ± ")
        await racing.pilot.press("enter")
        await racing.end(tokens=63)
        assert "too short to compare" in racing.text
        await racing.pilot.press("enter")
        await racing.end(accepted=0)
        assert "nothing was drafted, so both are plain" in racing.text
        assert "×" not in racing.text


async def test_enter_races_again_only_after_the_end_and_not_with_typed_words(
    racing: Racing,
) -> None:
    assert "Enter again" not in racing.text
    await racing.pilot.press("enter")
    assert len(racing.engine.asked) == 2
    await racing.end()
    assert "Enter again" in racing.text
    await racing.pilot.press(*"/new", "enter")
    assert len(racing.engine.asked) == 2
    await racing.pilot.press("n")
    await racing.until("Esc back to the chat, to type there")
    await racing.pilot.press("enter")
    await racing.until("Enter again")
    await racing.pilot.press("enter")
    assert len(racing.engine.asked) == 4


async def test_escape_stops_both_and_gives_the_drafters_back(racing: Racing) -> None:
    await racing.pilot.press("escape")
    await racing.pilot.pause()
    assert all(answer.is_stopped for answer in racing.engine.asked)
    assert racing.engine.followed == ["auto"]
    assert racing.app.returned == [None]


async def test_another_drafter_races_at_once_even_in_the_middle(racing: Racing) -> None:
    await racing.pilot.press("f3")
    await racing.pilot.pause()
    assert isinstance(racing.app.screen, DraftersScreen)
    await racing.pilot.press("home", "down", "enter")  # off is no drafter to race
    await racing.pilot.pause()
    assert len(racing.engine.asked) == 2
    await racing.pilot.press("f3", "enter")
    await racing.pilot.pause()
    assert len(racing.engine.asked) == 4
    assert all(answer.is_stopped for answer in racing.engine.asked[:2])


async def test_a_failed_answer_has_no_verdict_and_tells_why(racing: Racing) -> None:
    grow(racing.plain, TEXT, 3.0)
    racing.plain.error = ModelError("the engine failed", "it was told to")
    racing.plain.finish()
    racing.drafted.finish()
    await racing.until("no verdict")
    assert "the engine failed" in racing.text


@pytest.mark.slow
@pytest.mark.parametrize("size", [(10, 3), (300, 70)])
async def test_odd_text_in_odd_terminals(size: tuple[int, int]) -> None:
    async with race(size) as racing:
        grow(racing.plain, "\x1b[2J[red]猫" * 400, 2.0)
        grow(racing.drafted, "\u202e[/]\r\n" * 400, 2.0, accepted=4)
        for answer in racing.engine.asked:
            answer.finish()
        await racing.pilot.pause(0.6)
        assert "\x1b" not in racing.text


@pytest.mark.parametrize(
    ("plain", "drafted", "place"),
    [("a b c", "a b c", None), ("a b c", "a b d", 4), ("a bc", "a bd", 2), ("a", "", 0),
     ("a b", "a b c", 2), ("", "x", 0)],
)  # fmt: skip
def test_the_first_difference_begins_a_word(plain: str, drafted: str, place: int | None) -> None:
    assert first_difference(plain, drafted) == place
