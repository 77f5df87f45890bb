"""Drafters ranked in the app for the model that runs."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from app.engine.engine import Engine
from app.engine.engine_status import Phase
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui.app import SpecchatApp
from app.tui.chat_screen import ChatScreen
from app.tui.screens.drafters_screen import DraftersScreen
from decoding.sampling.distribution import SamplingSettings
from tests.app.tui.conftest import Chat

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
async def chat(tiny_llama: Callable[..., Path]) -> AsyncIterator[Chat]:
    """The app on a small real model, with another one installed that can draft for it."""
    folder = Paths.of_this_user().models
    folder.mkdir(parents=True)
    (folder / "target.gguf").write_bytes(tiny_llama(layers=3).read_bytes())
    (folder / "drafter.gguf").write_bytes(tiny_llama(layers=1).read_bytes())
    engine = Engine(SessionOptions(model="target", draft="off"), Paths.of_this_user())
    app = SpecchatApp(engine, None, "", SamplingSettings(temperature=0.0), 16)
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            assert isinstance(pilot, Pilot)
            yield Chat(app, pilot)
    finally:
        engine.close(10.0)


async def test_a_drafter_is_chosen_from_the_ranking(chat: Chat) -> None:
    await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
    await chat.say("/drafters")
    await chat.until(lambda: isinstance(chat.app.screen, DraftersScreen))
    listed = chat.app.screen.query_one(OptionList)
    await chat.until(lambda: listed.option_count > 0)
    names = [listed.get_option_at_index(place).id for place in range(listed.option_count)]
    assert {"lookup", "self", "drafter"} <= set(names)
    listed.highlighted = names.index("lookup")
    await chat.pilot.press("enter")
    await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
    await chat.until(lambda: chat.app.engine.draft == "lookup")
