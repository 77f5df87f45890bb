"""Keys pressed while a real model reads ahead: the answers are those of prompts read at once."""

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

KEYS = ("escape", "ctrl+t", "ctrl+r", "ctrl+z", "ctrl+n", "f9", "enter", "enter", "backspace")
TEXTS = ("and on ", "so ", "@notes.txt ", "/clear", "why? ", "the end of it all ")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Heard]:
    """Every reply; what is measured is measured shortly."""
    monkeypatch.setenv("SPECCHAT_THREADS", "1")
    hurry(monkeypatch)
    return hear(monkeypatch)


async def _at_random(chat: Chat, chance: random.Random) -> None:
    """Type, change or send something, and let the model read for a while or not."""
    area = chat.prompt
    area.focus()
    kind = chance.random()
    if area.text.startswith("/") and area.text not in TEXTS:  # no command, so it would stay
        await chat.pilot.press("ctrl+c")
    elif kind < 0.5:
        chat.screen.prompt.area.insert(chance.choice(TEXTS))
    elif kind < 0.6:
        area.move_cursor((0, chance.randrange(len(area.text) + 1)))
    elif area.text or kind < 0.8:
        await chat.pilot.press(chance.choice(KEYS))
    else:
        chat.app.engine.load(str(chat.app.engine.options.model))
    await chat.pilot.pause(chance.choice((0.0, 0.02, 0.3)))


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
async def test_answers_are_those_of_prompts_read_at_once(
    tiny_llama: Callable[..., Path],
    heard: list[Heard],
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("all that I know " * 8)
    path, chance, paths = tiny_llama(seed=3), random.Random(seed), Paths.of_this_user()
    engine = Engine(SessionOptions(str(path), draft="lookup", threads=1), paths)
    ahead: list[int] = []
    with closing(History.open(paths.history)) as history:
        app = SpecchatApp(engine, history, start(20))
        async with app.run_test(size=(100, 30)) as pilot:
            chat = Chat(app, pilot)
            await chat.ready()
            for _ in range(40):
                await _at_random(chat, chance)
                state = engine.status.ahead
                ahead.append(state.read if state is not None else 0)
            chat.prompt.end_edit()
            await chat.pilot.press("escape")
            await chat.until(lambda: chat.view.is_idle)
            await chat.ready()
            await chat.say("is all well?")
            await chat.until(
                lambda: any(turn.text == "is all well?" for turn in chat.view.dialogue.turns)
            )
            await chat.until(lambda: chat.view.is_idle and not chat.view.dialogue.queue)
            await chat.idle()
        assert engine.close(30.0)
    assert max(ahead) > 20
    assert sum(len(one.tokens) for one in heard) > 20
    assert_plain(heard, path)
