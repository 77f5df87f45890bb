"""Keys pressed while a real model answers: what was said stays the model's own, and stays."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.engine.engine import Engine
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui.app import SpecchatApp
from tests.app.tui.conftest import Chat, start
from tests.fixtures.heard import Heard, assert_plain, hear, hurry

KEYS = ("f2", "f4", "escape", "ctrl+t", "ctrl+r", "ctrl+z", "ctrl+y", "ctrl+c")
LINES = (
    "/draft self", "/draft lookup,self", "/draft self:skip=99", "/draft self:experts=3",
    "/draft nobody-knows-this", "/draft tree(self)", "/set top_k 5", "/set temperature 0",
    "and on and on", "hi",
)  # fmt: skip


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Heard]:
    """Every reply; what is measured is measured shortly."""
    monkeypatch.setenv("SPECCHAT_THREADS", "1")
    hurry(monkeypatch)
    return hear(monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize("seed", range(2))
async def test_answers_stay_the_models_own(
    tiny_llama: Callable[..., Path], heard: list[Heard], seed: int
) -> None:
    path, chance, paths = tiny_llama(seed=3), random.Random(seed), Paths.of_this_user()
    engine = Engine(SessionOptions(str(path), draft="lookup", threads=1), paths)
    with closing(History.open(paths.history)) as history:
        app = SpecchatApp(engine, history, start(60))
        async with app.run_test(size=(100, 30)) as pilot:
            chat = Chat(app, pilot)
            await chat.until(lambda: engine.status.loaded is not None)
            for _ in range(40):
                await pilot.pause(chance.uniform(0.0, 0.05))
                if chance.random() < 0.6:
                    await pilot.press(chance.choice(KEYS))
                else:
                    await chat.say(chance.choice(LINES))
            await chat.pilot.press("escape")
            await chat.until(lambda: chat.view.is_idle)
            await chat.say("/draft off")
            await chat.say("is all well?")
            asked = "is all well?"
            await chat.until(lambda: any(turn.text == asked for turn in chat.view.dialogue.turns))
            await chat.until(lambda: chat.view.is_idle and not chat.view.dialogue.queue)
            await chat.idle()
        assert engine.close(30.0)
    assert sum(len(one.tokens) for one in heard) > 20
    assert_plain(heard, path)
