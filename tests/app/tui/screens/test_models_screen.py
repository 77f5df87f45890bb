"""Changing the model in the app: what is installed, what fits, and what fails."""

from collections.abc import Callable

import pytest
from textual.widgets import OptionList, Static

from app.engine.engine import Engine
from app.engine.engine_status import Phase
from app.engine.session import Session
from app.loading.model_list import offered
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui.screens.models_screen import ModelsScreen
from backends.base import ModelError
from models.metadata.memory_bill import Fit
from models.reference import Reference, resolve
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.local_hub import LocalHub
from tests.fixtures.scripted import ScriptedModel, opened

REPOSITORY = "bartowski/SmolLM2-360M-Instruct-GGUF"
FILE = "SmolLM2-360M-Instruct-Q4_K_M.gguf"
CONTENT = b"GGUF" + bytes(3_000_000)
PATIENCE_SECONDS = 30


@pytest.fixture(autouse=True)
def two_files() -> None:
    folder = Paths.of_this_user().models
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("large", "small"):
        (folder / f"{name}.gguf").write_bytes(b"x" * (9 if name == "large" else 5))


@pytest.fixture
def hub(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    local_hub.repositories[REPOSITORY] = {FILE: CONTENT}
    monkeypatch.setenv("HF_ENDPOINT", local_hub.endpoint)
    return local_hub


def told(chat: Chat) -> str:
    return "\n".join(one.message for one in chat.app._notifications)


def test_what_is_here_comes_before_what_can_be_had() -> None:
    found = offered(Paths.of_this_user().models, free=4 << 30)
    names = [model.name for model in found if model.is_installed]
    assert names == ["demo", "large", "small"]
    by_name = {model.name: model for model in found}
    assert by_name["demo"].fit is Fit.FITS
    assert by_name["large"].fit is None
    assert by_name["llama3.3-70b"].fit is Fit.TOO_BIG
    experts = by_name["qwen3-30b-a3b"]
    assert (experts.read_bytes or 0) < (experts.size_bytes or 0) / 5


async def test_a_model_of_the_catalogue_is_downloaded_stopped_resumed_and_loaded(
    chatting: Chatting, hub: LocalHub
) -> None:
    hub.pause_at = 1_000_000
    async with chatting(ScriptedModel(["a"])) as chat:
        await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
        await chat.pilot.press("ctrl+l", *"360m", "enter")
        await chat.until(hub.paused.is_set)
        line = chat.screen.query_one("#downloads", Static)
        await chat.until(lambda: line.display and "smollm2-360m: downloading" in str(line.content))
        await chat.ask("does it answer meanwhile?")
        assert chat.texts[-1] == ("assistant", "a")
        await chat.say("/model smollm2-360m")
        hub.pause_at = None
        hub.released.set()
        await chat.until(lambda: "stopped; the part that has arrived is kept" in told(chat))
        assert chat.app.engine.options.model is None
        await chat.say("/model smollm2-360m")
        await chat.until(lambda: chat.app.engine.options.model == "smollm2-360m")
        assert not line.display
        assert hub.ranges()[0] is None
        assert str(hub.ranges()[1]).startswith("bytes=")
        found = resolve("smollm2-360m", Paths.of_this_user().models)
        assert isinstance(found, Reference)
        assert found.path.read_bytes() == CONTENT


async def test_a_hub_that_cannot_be_reached_is_told(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    async with chatting(ScriptedModel(["a"])) as chat:
        await chat.say("/model smollm2-360m")
        await chat.until(lambda: "offline" in told(chat))
        assert chat.app.engine.options.model is None


async def test_a_model_is_searched_and_loaded(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
        await chat.pilot.press("ctrl+l", *"larg")
        await chat.until(lambda: isinstance(chat.app.screen, ModelsScreen))
        listed = chat.app.screen.query_one(OptionList)
        await chat.until(lambda: listed.option_count == 1)
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.app.engine.options.model == "large")
        await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
        await chat.ask("still there?")
        assert chat.texts[-1] == ("assistant", "a")


async def test_an_unknown_model_names_the_nearest_and_changes_nothing(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        await chat.say("/model smal")
        await chat.until(lambda: len(chat.app._notifications) > 0)
        assert "nearest: small" in next(iter(chat.app._notifications)).message
        assert chat.app.engine.options.model is None


async def test_the_model_before_comes_back_when_another_cannot_be_loaded() -> None:
    model = ScriptedModel(["a"])
    usual = opened(model)

    def open_session(options: SessionOptions, paths: Paths, notify) -> Session:
        if options.model == "broken":
            raise ModelError("cannot load broken", "its file is damaged")
        return usual(options, paths, notify)

    engine = Engine(SessionOptions(draft="off"), Paths.of_this_user(), open_session)
    engine.start()
    engine.load("broken")
    count = engine.count("four")
    try:
        assert count.result(30.0) == 4
        assert engine.status.phase is Phase.READY
        assert "damaged" in str(engine.status.error)
        assert engine.options.model is None
    finally:
        assert engine.close(10.0)


async def test_escape_stops_a_model_that_is_being_checked(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        engine = chat.app.engine
        await chat.until(lambda: engine.status.phase is Phase.READY)

        def checks(options: SessionOptions, paths: Paths, notify: Callable[[str], None]) -> Session:
            while True:
                notify("checking large.gguf")

        usual, engine._open = engine._open, checks
        await chat.say("/model large")
        shown = chat.screen.query_one("#what", Static)
        await chat.until(lambda: str(shown.content) == "checking large.gguf…")
        engine._open = usual  # the one before comes back
        await chat.pilot.press("escape")
        await chat.until(lambda: "loading was stopped" in told(chat))
        await chat.until(lambda: engine.status.phase is Phase.READY)
        assert engine.options.model is None
