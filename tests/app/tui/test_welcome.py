"""What an empty chat shows: the last chats, a demonstration, and models for the first run."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from textual import on
from textual.pilot import Pilot

from app.engine.engine import Engine
from app.engine.status import Loaded, Phase, Status
from app.history import Chat, History
from app.loading.model_list import ModelList
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings import file
from app.tui.welcome import Welcome
from app.tui.widgets import Wanted
from models.reference import Reference
from tests.app.tui.conftest import MODELS, offered
from tests.fixtures.metrics import LIVE
from tests.fixtures.screen_text import screen_text, settled_text
from tests.fixtures.small_app import SmallApp

TITLES = ("Correct the spelling of letter.md", "A rate limiter in Go", "Names for a sailing boat")


INFO = replace(LIVE.model, bytes_read_per_token=100_000_000, threads=8)
LOADED = Loaded(Reference("demo", INFO.path), INFO, 8192, (), "", (), 0.0, 25e9, 250.0)


class Chats:
    """A history of some chats."""

    def __init__(self, *titles: str) -> None:
        self.titles = titles

    def chats(self, query: str = "", limit: int = 500) -> list[Chat]:
        now = time.time()
        ages = (330.0, 1530.0, 2730.0)
        return [
            Chat(number, title, "", "", 0.0, now - age, 2)
            for number, (title, age) in enumerate(zip(self.titles, ages, strict=False), start=1)
        ][:limit]


class WelcomeApp(SmallApp):
    """A small app that keeps the messages of its welcome."""

    def __init__(self, history: Chats | None, **options: Any) -> None:
        self.heard: list[Any] = []
        self.engine = SimpleNamespace(
            options=SessionOptions(**options),
            paths=Paths.of_this_user(),
            status=Status(Phase.READY),
        )
        super().__init__(
            lambda store: [Welcome(store, cast(Engine, self.engine), cast(History | None, history))]
        )

    @property
    def welcome(self) -> Welcome:
        return self.query_one(Welcome)

    @on(Wanted)
    def _hear(self, event: Wanted) -> None:
        self.heard.append((event.action, *event.arguments))


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> list[ModelList]:
    """The models that are here: the last of the list."""
    here = [MODELS]
    monkeypatch.setattr("app.tui.welcome.models_here", lambda _engine: here[-1])
    return here


async def load(app: WelcomeApp, pilot: Pilot[None], model: Loaded = LOADED) -> None:
    app.store.status = Status(Phase.READY, "", model)
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()


@asynccontextmanager
async def welcomed(
    history: Chats | None = None, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[tuple[WelcomeApp, Pilot[None]]]:
    """The welcome of an app whose model is loaded, with the cursor in its rows."""
    app = WelcomeApp(history, **options)
    async with app.run_test(size=size) as pilot:
        await load(app, pilot)
        app.welcome.focus_rows()
        yield app, pilot


@pytest.mark.parametrize("has_demo_alone", [False, True])
async def test_a_card_that_lies_idle_is_named_with_what_would_use_it(
    has_demo_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.engines.engine_facts.idle_card", lambda: "NVIDIA L4")
    model = None if has_demo_alone else "demo"
    for width in (80, 40):
        async with welcomed(size=(width, 24), model=model) as (_, pilot):
            shown = " ".join((await settled_text(pilot)).split())
            assert "NVIDIA L4 lies idle. To use it: specchat build cuda" in shown


async def test_where_a_divided_model_is() -> None:
    async with welcomed(model="demo", rpc="box:50052") as (app, _):
        shown = " ".join(screen_text(app).split())
    assert "Layers run on box:50052. What you write goes there unencrypted" in shown
    assert "Everything runs on this machine" not in shown


async def test_renamed_and_removed_chats_are_shown_as_they_are() -> None:
    chats = Chats(*TITLES)
    async with welcomed(chats, model="demo") as (app, pilot):
        chats.titles = ("Spelling", TITLES[1])
        app.welcome.renew()
        await pilot.pause()
        shown = screen_text(app)
        assert "Spelling" in shown
        assert TITLES[0] not in shown
        assert TITLES[2] not in shown


async def test_models_known_only_when_the_screen_is_closing_are_passed_over() -> None:
    async with welcomed() as (app, _):
        await app.welcome.remove_children()
        app.welcome.renew()


@pytest.mark.parametrize("history", [None, Chats(*TITLES)])
async def test_the_first_model_is_highlighted_however_late_models_are_known(
    monkeypatch: pytest.MonkeyPatch, history: Chats | None
) -> None:
    app = WelcomeApp(history)

    def late(_engine: object) -> ModelList:
        app.call_from_thread(app.welcome.renew)
        return MODELS

    monkeypatch.setattr("app.tui.welcome.models_here", late)
    async with app.run_test(size=(80, 24)) as pilot:
        app.screen.set_focus(None)  # it is in the prompt
        await load(app, pilot)
        app.welcome.focus_rows()
        await pilot.press("enter")
        assert app.heard[0] == ("perform", "model", "qwen3-4b")


async def test_down_then_enter_opens_a_chat_and_up_returns() -> None:
    app = WelcomeApp(Chats(*TITLES), model="demo")
    async with app.run_test(size=(80, 24)) as pilot:
        app.welcome.focus_rows()
        await pilot.press("down", "enter")
        await pilot.press("up", "up")
        assert app.heard == [("perform", "chats", "2"), ("focus_prompt",)]


async def test_a_demonstration_is_offered_below_the_chats() -> None:
    async with welcomed(Chats(*TITLES), model="demo") as (app, pilot):
        await pilot.press("end", "enter")
        assert app.heard[-1] == ("perform", "race")


async def test_a_picked_model_downloads_once() -> None:
    async with welcomed() as (app, pilot):
        await pilot.press("down", "enter")
        assert app.heard[0] == ("perform", "model", "llama3.2-3b")
        app.store.downloads = {"llama3.2-3b": "34 %, 2 min left"}
        await pilot.pause()
        assert "34 %" not in screen_text(app)  # it stands in the prompt's frame
        count = len(app.heard)
        await pilot.press("enter")
        assert len(app.heard) == count


async def test_escape_leaves_the_rows_and_the_demo_is_kept_for_good() -> None:
    async with welcomed() as (app, pilot):
        await pilot.press("escape")
        assert app.heard[-1] == ("focus_prompt",)
        assert "recommended" in screen_text(app)
        assert app.welcome.keep_demo()
        await pilot.pause()
        assert "recommended" not in screen_text(app)
        assert "Ctrl+L lists better models" in screen_text(app)
        assert "See what drafting does" in screen_text(app)
        assert file.read(app.engine.paths.settings)["model"] == "demo"
        assert not app.welcome.keep_demo()


@pytest.mark.parametrize("own", ["chosen", "installed", "loaded"])
async def test_whoever_has_a_model_is_offered_none(own: str, models: list[ModelList]) -> None:
    app = WelcomeApp(None, model="demo" if own == "chosen" else None)
    if own == "installed":
        mine = offered("mine", 1e9, installed=True)
        models.append(replace(MODELS, models=(*MODELS.models, mine)))
    other = replace(LOADED, reference=Reference("mine", INFO.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await load(app, pilot, other if own == "loaded" else LOADED)
        assert "recommended" not in screen_text(app)


async def test_an_incomplete_model_is_not_a_model_of_ones_own(models: list[ModelList]) -> None:
    cut = replace(offered("mine", 1e9, installed=True), fault="incomplete: 1.1 of 2.5 GB")
    models.append(replace(MODELS, models=(*MODELS.models, cut)))
    async with welcomed() as (app, _):
        assert "recommended" in screen_text(app)


async def test_offline_the_folder_for_models_is_named() -> None:
    async with welcomed(offline=True) as (app, _):
        text = " ".join(screen_text(app).split())
        assert "Put a .gguf file into models, then Ctrl+L uses it." in text
        assert "recommended" not in text


@pytest.mark.slow
@pytest.mark.parametrize("size", [(10, 3), (250, 60)])
async def test_odd_titles_in_odd_terminals(size: tuple[int, int]) -> None:
    async with welcomed(Chats("\x1b[2J[red]猫\n" * 30, "", "\u202e"), size) as (app, pilot):
        await pilot.press("end", "home", "down")
        assert "\x1b" not in screen_text(app)
