"""What the app tells in passing: out of the way, once, and short."""

from dataclasses import replace

import pytest
from textual.widgets._toast import Toast

from app.engine.engine import Engine
from app.learned.calibrations import ProcessorTimes
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui.app import SpecchatApp
from app.tui.prompt.area import PromptArea
from tests.app.tui.conftest import WORDS, Chat, Chatting, start
from tests.fixtures.scripted import ScriptedModel, opened


async def test_they_cover_neither_prompt_nor_figures() -> None:
    engine = Engine(SessionOptions(draft="off"), Paths.of_this_user(), opened(ScriptedModel(WORDS)))
    app = SpecchatApp(engine, None, start())
    try:
        async with app.run_test(size=(40, 24), notifications=True) as pilot:
            app.notify("[not] markup")
            while not app.screen.query(Toast):
                await pilot.pause(0.02)
            await pilot.pause()
            toast = app.screen.query_one(Toast)
            assert str(toast.render()) == "[not] markup"
            assert toast.region.y == 1
            assert toast.region.right > 35
            assert toast.region.bottom < app.screen.query_one(PromptArea).region.y
    finally:
        engine.close(10.0)


async def test_nothing_is_told_twice_at_once(chat: Chat) -> None:
    for _ in range(3):
        chat.app.notify("Copied the answer.")
        await chat.until(lambda: bool(chat.toasts))
    assert chat.toasts == "Copied the answer."


@pytest.mark.slow
async def test_a_setting_that_cannot_be_used_is_told_once_and_left_out(chatting: Chatting) -> None:
    path = Paths.of_this_user().settings
    path.parent.mkdir(parents=True)
    path.write_text('theme = "specchat-drak"\ntemperature = "hot"\n[keys]\nnew = "strg+n"\n')
    async with chatting(ScriptedModel(WORDS), (120, 36)) as chat:
        await chat.until(lambda: "specchat-drak" in chat.cards)
        assert "temperature" in chat.cards
        assert "strg+n" in chat.cards
        assert chat.app.theme == "specchat-dark"
        await chat.ask("hello")
        assert "specchat-drak" not in chat.cards


async def test_copying_what_the_mouse_selected_is_told(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    monkeypatch.setattr("pyperclip.copy", copied.append)
    await chat.ask("some words to select")
    chat.view.transcript.views[0].query_one(".text").text_select_all()
    await chat.pilot.pause()
    await chat.pilot.press("ctrl+c")
    await chat.until(lambda: "Copied the selection." in chat.toasts)
    assert copied == ["some words to select"]


async def test_what_an_upgrade_changed_is_told_once(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessorTimes, "load_until", lambda *_: 0.0)
    monkeypatch.setattr("app.engine.upgrade_guard.MEASURE_AFTER_SECONDS", 0.0)
    kept = Paths.of_this_user().upgrades

    def guarded(version: str, words: list[str]) -> ScriptedModel:
        model = ScriptedModel(words)
        model.info = replace(model.info, engine=f"llama-cpp-python {version} CPU")
        return model

    async with chatting(guarded("0.3.35", WORDS), (120, 36)) as chat:
        await chat.until(kept.exists)
        assert not chat.cards
    async with chatting(guarded("0.3.36", [WORDS[0], *WORDS]), (120, 36)) as chat:
        await chat.until(lambda: "0.3.36 in place of" in chat.cards)
        await chat.ask("hello")
        assert "in place of" not in chat.cards
