"""Write the pictures: `python -m scripts.pictures docs/pictures --model FILE --races 5`.

The model answers everywhere but in the pictures of the first start, which show the bundled one.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from scripts.pictures.scenes import chat, first_run, races
from scripts.pictures.stage import paths_in

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
