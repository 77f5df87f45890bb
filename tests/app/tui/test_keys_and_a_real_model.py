"""Keys pressed while a real model answers or reads ahead: what it says stays its own, and stays."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from shutil import copyfile

import pytest

from app.engine.engine import Engine
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui.app import SpecchatApp
from backends.base.images import IMAGE_TOKENS, image_of
from tests.app.tui.conftest import Chat, start
from tests.fixtures.heard import Heard, assert_plain, hear, hurry
from tests.fixtures.tiny.projector import picture, write_projector

KEYS = ("f2", "f4", "escape", "ctrl+t", "ctrl+r", "ctrl+z", "ctrl+y", "ctrl+c")
LINES = (
    "/draft self", "/draft lookup,self", "/draft self:skip=99", "/draft self:experts=3",
    "/draft nobody-knows-this", "/draft tree(self)", "/set top_k 5", "/set temperature 0",
    "and on and on", "hi",
)  # fmt: skip
KEYS_OF_READING = (
    "escape", "ctrl+t", "ctrl+r", "ctrl+z", "ctrl+n", "f9", "enter", "enter", "backspace",
)  # fmt: skip
TEXTS = ("and on ", "so ", "@notes.txt ", "@cat.png ", "/clear", "why? ", "the end of it all ")

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Heard]:
    """Every reply; what is measured is measured shortly."""
    monkeypatch.setenv("SPECCHAT_THREADS", "1")
    hurry(monkeypatch)
    return hear(monkeypatch)


@asynccontextmanager
async def chatting_on(path: Path, most: int) -> AsyncIterator[Chat]:
    """The app on a model; at its end one more question is answered."""
    paths = Paths.of_this_user()
    engine = Engine(SessionOptions(str(path), draft="lookup", threads=1), paths)
    with closing(History.open(paths.history)) as history:
        app = SpecchatApp(engine, history, start(most))
        async with app.run_test(size=(100, 30)) as pilot:
            chat = Chat(app, pilot)
            await chat.ready()
            yield chat
            await chat.pilot.press("escape")
            await chat.until(lambda: chat.view.is_idle)
            await chat.ready()
            await chat.say("/draft off")
            asked = "is all well?"
            await chat.say(asked)
            await chat.until(lambda: any(turn.text == asked for turn in chat.view.dialogue.turns))
            await chat.until(lambda: chat.view.is_idle and not chat.view.dialogue.queue)
            await chat.idle()
        assert engine.close(30.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_answers_stay_the_models_own(
    tiny_llama: Callable[..., Path], heard: list[Heard], seed: int
) -> None:
    path, chance = tiny_llama(seed=3), random.Random(seed)
    async with chatting_on(path, 60) as chat:
        for _ in range(40):
            await chat.pilot.pause(chance.uniform(0.0, 0.05))
            if chance.random() < 0.6:
                await chat.pilot.press(chance.choice(KEYS))
            else:
                await chat.say(chance.choice(LINES))
    assert sum(len(one.tokens) for one in heard) > 20
    assert_plain(heard, path)


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
        await chat.pilot.press(chance.choice(KEYS_OF_READING))
    else:
        chat.app.engine.load(str(chat.app.engine.options.model))
    await chat.pilot.pause(chance.choice((0.0, 0.02, 0.3)))


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
    path, chance = Path(copyfile(tiny_llama(seed=3), "Tiny.gguf")).absolute(), random.Random(seed)
    projector = write_projector(tmp_path / "mmproj-Tiny.gguf", width=32)
    Path("cat.png").write_bytes(picture(1))
    ahead: list[int] = []
    async with chatting_on(path, 20) as chat:
        await chat.say("what is @cat.png")
        await chat.until(lambda: bool(heard))
        for _ in range(40):
            await _at_random(chat, chance)
            state = chat.app.engine.status.ahead
            ahead.append(state.read if state is not None else 0)
        chat.prompt.end_edit()
    assert max(ahead) > 20
    assert sum(len(one.tokens) for one in heard) > 20
    assert any(max(one.prompt) >= IMAGE_TOKENS for one in heard)
    assert_plain(heard, path, projector=projector, images=[image_of(picture(1), "cat")])
