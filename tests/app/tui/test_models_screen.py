"""Changing the model in the app: what is installed, what fits, and what fails."""

from pathlib import Path

import pytest
from textual.widgets import OptionList, Static

from app.engine import Engine
from app.engine_status import Phase
from app.installed import Fit, fit, installed
from app.paths import Paths
from app.session import Session, SessionOptions
from app.tui.models_screen import ModelsScreen
from backends.base import ModelError
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel, opened

GB = 1 << 30


@pytest.fixture(autouse=True)
def two_files() -> None:
    folder = Paths.of_this_user().models
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("large", "small"):
        (folder / f"{name}.gguf").write_bytes(b"x" * (9 if name == "large" else 5))


def what_runs(chat: Chat) -> str:
    return str(chat.screen.query_one("#what", Static).content)


def test_fit_is_told_from_the_memory_that_is_free() -> None:
    assert fit(GB, 8 * GB) is Fit.FITS
    assert fit(8 * GB, 10 * GB) is Fit.TIGHT
    assert fit(9 * GB, 10 * GB) is Fit.TOO_BIG
    names = [model.name for model in installed(Paths.of_this_user())]
    assert names.index("large") < names.index("small")


async def test_a_model_is_searched_and_loaded(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
        await chat.pilot.press("ctrl+l", *"smal")
        await chat.until(lambda: isinstance(chat.app.screen, ModelsScreen))
        listed = chat.app.screen.query_one(OptionList)
        await chat.until(lambda: listed.option_count == 1)
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.app.engine.options.model == "small")
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


def test_no_file_is_no_reason_to_fail(tmp_path: Path) -> None:
    nowhere = Paths(tmp_path, tmp_path / "none", tmp_path)
    assert [model.name for model in installed(nowhere)] in ([], ["demo"])
