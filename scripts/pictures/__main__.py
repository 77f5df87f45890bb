"""Write the pictures: `python -m scripts.pictures docs/pictures --model FILE --races 5`.

The model answers everywhere but in the pictures of the first start, which show the bundled one.
"""

import argparse
import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from textual.events import Paste
from textual.pilot import Pilot
from textual.screen import Screen

from app.engine.engine import Engine
from app.engine.status import Phase
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.in_effect import AppStart, Preferences
from app.tui.app import SpecchatApp
from app.tui.chat_screen import ChatScreen
from app.tui.screens.race import RaceScreen
from decoding.sampling.settings import SamplingSettings

PATIENCE_SECONDS = 900.0
_LOOK_SECONDS = 0.1
_REST_SECONDS = 0.5

_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_OWN_NAME = re.compile(r"terminal-\d+")


class Stage:
    """The app on the screen, and the pictures taken of it, by name."""

    def __init__(self, app: SpecchatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pictures: dict[str, str] = {}
        self._pilot = pilot

    @property
    def chat(self) -> ChatScreen:
        """The screen of the chat, whatever is in front of it."""
        return next(one for one in self.app.screen_stack if isinstance(one, ChatScreen))

    @property
    def front(self) -> Screen[object]:
        """The screen in front."""
        return self.app.screen

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self._pilot.press(*keys)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the app go on until something holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self._pilot.pause(_LOOK_SECONDS)

    async def loaded(self) -> None:
        """Wait for the model."""
        await self.until(lambda: self.app.engine.status.phase is not Phase.LOADING)

    async def send(self, text: str) -> None:
        """Type a text and send it."""
        self.chat.prompt.area.write(text)
        await self.press("enter")
        await self._pilot.pause(_REST_SECONDS)

    async def ask(self, question: str) -> None:
        """Ask a question and wait for the end of its answer."""
        await self.send(question)
        await self.answered()

    async def answered(self) -> None:
        """Wait for the end of the answer."""
        await self.until(lambda: self.chat.view.is_idle)
        await self.rest()

    async def rest(self) -> None:
        """Wait until the screen does not change any more."""
        before = ""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while before != (before := self._svg()):
                await self._pilot.pause(_REST_SECONDS)

    async def take(self, name: str, *sizes: tuple[int, int]) -> None:
        """Take a picture of a screen at rest, in one or more sizes; the first has the bare name."""
        for size in sizes:
            await self._pilot.resize_terminal(*size)
            await self.rest()
            self.take_now(name if size == sizes[0] else f"{name}-{size[0]}")

    def take_now(self, name: str) -> None:
        """Take a picture of the screen as it is."""
        self.pictures[name] = self._svg()

    def _svg(self) -> str:
        """The screen in the reader's own fonts; equal screens give equal text."""
        svg = self.app.export_screenshot(title="specchat")
        return _OWN_NAME.sub("terminal", _FONT.sub("", svg))


def paths_in(home: Path) -> Paths:
    """The app's folders in home."""
    return Paths(home / "config", home / "data", home / "cache")


@asynccontextmanager
async def running(model: str | None, home: Path, size: tuple[int, int]) -> AsyncGenerator[Stage]:
    """The app with its folders in home; model: None for the one that a first start uses."""
    paths = paths_in(home)
    history = History.open(paths.history)
    engine = Engine(SessionOptions(model=model), paths)
    answering = Answering(SamplingSettings(), 2048)
    app = SpecchatApp(
        engine, history, AppStart(engine.options, "", answering, Preferences(paths.settings))
    )
    try:
        async with app.run_test(size=size, notifications=False) as pilot:
            stage = Stage(app, pilot)
            await stage.loaded()
            await stage.rest()
            yield stage
    finally:
        engine.close(10.0)
        history.close()


WIDE, USUAL, SMALL = (120, 36), (80, 24), (40, 20)

LETTER = """\
Dear Ms Lindqvist, thank you for your letter of the third of April. The weather here is often \
rainy, so it is wise to bring an umbrela when you come. From the station you walk along the river \
for ten minuts; our house is the one with the green door. We are at home from four on, and there \
will be tea. If the train is late, do not hurry: the kettle can wait.
"""

_EARLIER = ("Why is the sky blue?", "Name three colours of a sailing boat.")
_EDIT = "Correct the spelling of this letter and change nothing else: @letter.md"
_LOG = "\n".join(f"line {number} of a log" for number in range(1, 25))
_NEXT = "Now make it half as long.", _LOG
"""What is queued while the letter is corrected once more; a log is folded."""

_ENOUGH = 300
"""Characters of the answer that is pictured while it is written: of 64 tokens on, whose speed is
compared."""


async def first_run(home: Path) -> dict[str, str]:
    """The first start, with the bundled model alone."""
    async with running(None, home, WIDE) as stage:
        await stage.until(lambda: bool(stage.front.query("Welcome #text")))
        await stage.take("first-run", WIDE)
    return stage.pictures


async def chat(model: str, home: Path) -> dict[str, str]:
    """An answer and its figures, the lists, and an empty chat."""
    async with running(model, home, WIDE) as stage:
        for question in _EARLIER:
            await stage.send("/set max_tokens 40")
            await stage.ask(question)
            await stage.press("ctrl+n")
        await _edit(stage)
        await _lists(stage)
        await stage.press("ctrl+n")
        await stage.take("idle", WIDE, SMALL)
    return stage.pictures


async def _edit(stage: Stage) -> None:
    Path("letter.md").write_text(LETTER, encoding="utf-8")
    await stage.send("/set temperature 0")
    await stage.ask(_EDIT)
    await stage.press("ctrl+r")
    for text in _NEXT:
        stage.chat.prompt.area.post_message(Paste(text))
        await stage.press("enter")
    await stage.until(lambda: stage.chat.view.is_idle or _length(stage) >= _ENOUGH)
    stage.take_now("answering")
    await stage.press("escape", "up", "ctrl+c", "up", "ctrl+c", "ctrl+r")
    await stage.answered()
    await stage.press("f2")
    await stage.take("details", WIDE)
    stage.chat.store.shows_details = False
    stage.chat.store.preferences = replace(stage.chat.store.preferences, panel="auto")
    await stage.take("finished", USUAL)


def _length(stage: Stage) -> int:
    return len(stage.chat.view.dialogue.turns[-1].text)


async def _lists(stage: Stage) -> None:
    for key, name, sizes in (
        ("f3", "drafters", (WIDE,)),
        ("ctrl+l", "models", (WIDE, SMALL)),
        ("ctrl+o", "chats", (USUAL,)),
        ("f8", "settings", (USUAL,)),
        ("f1", "help", (USUAL,)),
    ):
        await stage.press(key)
        await stage.take(name, *sizes)
        await stage.press("escape")


async def races(model: str, home: Path, count: int) -> dict[str, str]:
    """The built-in race, count times: the picture is that of the race with the median gain."""
    seen: list[tuple[float, str]] = []
    async with running(model, home, WIDE) as stage:
        await stage.send("/race")
        race = stage.front
        assert isinstance(race, RaceScreen)
        for number in range(count):
            if number:
                await stage.press("enter")
            await stage.until(lambda: bool(race.outcome))
            await stage.rest()
            stage.take_now("race")
            rates = [
                answer.metrics.decode_tokens_per_second or 0.0 if answer.metrics else 0.0
                for answer in race.answers
            ]
            gain = rates[1] / rates[0] if rates[0] else 0.0
            print(f"race {number + 1}: {rates[0]:.2f} and {rates[1]:.2f} tok/s,", race.outcome)
            seen.append((gain, stage.pictures["race"]))
    seen.sort(key=lambda one: one[0])
    print("gains:", " ".join(f"{gain:.3f}" for gain, _ in seen))
    return {"race": seen[len(seen) // 2][1]}


_SCENES = "first", "chat", "race"
_TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
"""What tells the app that it has all colours."""


def _name(model: str, home: Path) -> str:
    """The name of a model; a file is put into the models folder, so that lists show it."""
    file = Path(model).absolute()
    if not file.is_file():
        return model
    folder = paths_in(home).models
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file.name).symlink_to(file)
    return file.stem


async def pictures(model: str, home: Path, scenes: list[str], count: int) -> dict[str, str]:
    """Pictures by name; home: what is measured there serves all scenes but the first start."""
    taken = dict[str, str]()
    if "first" in scenes:
        taken |= await first_run(home / "first")
    if "chat" in scenes:
        taken |= await chat(model, home / "used")
    if "race" in scenes:
        taken |= await races(model, home / "used", count)
    return taken


def main() -> None:
    """Write the pictures of the scenes named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="demo", help="a model name or file")
    parser.add_argument("--races", type=int, default=5, help="how often it is raced")
    parser.add_argument("--scenes", nargs="+", choices=_SCENES, default=list(_SCENES))
    arguments = parser.parse_args()
    os.environ.pop("NO_COLOR", None)
    os.environ.update(_TERMINAL)
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        model = _name(arguments.model, Path(home) / "used")
        with contextlib.chdir(home):
            taken = asyncio.run(pictures(model, Path(home), arguments.scenes, arguments.races))
    for name, svg in taken.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
