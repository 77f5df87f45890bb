"""Makes the pictures of the app for the documentation, as SVG, from the running app.

Each is a state that a pilot brings the app to: python -m scripts.pictures FOLDER [NAME…]
"""

import argparse
import asyncio
import re
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot

from app.engine.engine import Engine
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui.app import SpecchatApp
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.scripted import ScriptedModel, opened

PATIENCE_SECONDS = 60.0

LETTER = """\
Dear Ms Lindqvist,

thank you for your letter of the third of April. The weather here is often rainy, so it is wise to \
bring an umbrella when you come. From the station you walk along the river for ten minutes; our \
house is the one with the green door.
"""


class Stage:
    """The running app, and what a person could do with it."""

    def __init__(self, app: SpecchatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.press = pilot.press
        self._pause = pilot.pause

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the app go on until something holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self._pause(0.05)

    async def loaded(self) -> None:
        """Wait for the model."""
        await self.until(lambda: self.app.engine.status.loaded is not None)

    async def type_text(self, text: str) -> None:
        """Type a text."""
        await self.press(*text)

    async def rest(self) -> None:
        """Wait until the screen does not change any more."""
        before = ""
        while before != (before := self.picture()):
            await self._pause(0.5)

    async def ask(self, question: str) -> None:
        """Ask a question and wait for the end of its answer."""
        await self.loaded()
        await self.type_text(question)
        await self.press("enter")
        await self._pause(0.5)
        await self.rest()

    def picture(self) -> str:
        """The screen as SVG; equal screens give equal files."""
        svg = self.app.export_screenshot(title="specchat")
        return re.sub(r"terminal-\d+", "terminal", svg)


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture. scene: brings the app to the state; answer: what the model says.

    theme: empty for the standard one.
    """

    scene: Callable[[Stage], Awaitable[None]]
    answer: str = LETTER
    size: tuple[int, int] = (120, 36)
    theme: str = ""


async def _idle(stage: Stage) -> None:
    await stage.loaded()
    await stage.rest()


async def _answer(stage: Stage) -> None:
    await stage.ask("Correct the spelling of my letter")


PICTURES = {
    "idle": Picture(_idle),
    "answer": Picture(_answer),
    "answer-narrow": Picture(_answer, size=(40, 20)),
}


@asynccontextmanager
async def _running(picture: Picture, home: Path) -> AsyncGenerator[Stage]:
    """The app on a scripted model, with an empty home folder."""
    paths = Paths(home / "config", home / "data", home / "cache")
    history = History.open(paths.history)
    pieces = re.findall(r"\s*\S+\s*?(?=\s|$)", picture.answer)
    engine = Engine(SessionOptions(), paths, opened(ScriptedModel(pieces)))
    app = SpecchatApp(engine, history, "", SamplingSettings(temperature=0.0), 2048)
    try:
        async with app.run_test(size=picture.size, notifications=False) as pilot:
            if picture.theme:
                app.theme = picture.theme
            await pilot.pause()
            yield Stage(app, pilot)
    finally:
        engine.close(10.0)
        history.close()


async def draw(picture: Picture) -> str:
    """The picture as SVG."""
    with tempfile.TemporaryDirectory() as home:
        async with _running(picture, Path(home)) as stage:
            await picture.scene(stage)
            return stage.picture()


def main() -> None:
    """Write the named pictures, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], default=[])
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or PICTURES:
        svg = asyncio.run(draw(PICTURES[name]))
        (arguments.folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
