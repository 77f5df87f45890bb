"""Takes the picture of README: `python -m scripts.release.take_screenshot docs/screenshot.svg`.

A real reply of the bundled model, with the live panel. The fonts that Textual names by address are
left out: the picture then shows in whatever monospaced font the reader has.
"""

import argparse
import asyncio
import re
import tempfile
from pathlib import Path

from app.engine.engine import Engine
from app.engine.engine_status import Phase
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.preferences import Preferences
from app.tui.app import SpecchatApp
from app.tui.chat_screen import ChatScreen
from decoding.sampling.distribution import SamplingSettings

_QUESTION = """\
Print this file again with a docstring for each method.

class Bag:
    def __init__(self):
        self.items = []

    def add(self, name, price):
        self.items.append((name, price))

    def remove(self, name):
        self.items = [(n, p) for n, p in self.items if n != name]

    def total(self):
        return sum(price for name, price in self.items)"""
_SIZE = (120, 34)


async def picture(paths: Paths) -> str:
    """SVG of the app after one answer."""
    engine = Engine(SessionOptions(model="demo"), paths)
    settings = SamplingSettings(temperature=0.0)
    app = SpecchatApp(engine, None, "", settings, 300, Preferences(paths.settings))
    try:
        async with app.run_test(size=_SIZE) as pilot:
            while engine.status.phase is Phase.LOADING:
                await asyncio.sleep(0.1)
            screen = app.screen
            assert isinstance(screen, ChatScreen)
            await screen.view.send(_QUESTION)
            while screen.view.pending is not None:
                await asyncio.sleep(0.1)
            await pilot.pause(1.0)
            return re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(), flags=re.DOTALL)
    finally:
        engine.close(10.0)


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        svg = asyncio.run(picture(Paths(root / "config", root / "data", root / "cache")))
    file.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
