"""Models at hand: the bundled one, and files and folders in the models folder."""

from collections.abc import Iterator
from pathlib import Path

from backends.base import ModelError
from backends.gguf_header import parts, read_header
from backends.mlx_folder import is_mlx_folder, read_mlx_folder
from models.bundled import demo_path

DEMO = "demo"

_DEPTHS = ("*.gguf", "*/*.gguf", "*/*/*.gguf", "*/*/*/*.gguf")
"""Files of the folder itself, of ORG/NAME below it, and of folders such files are split into."""


def known_names(folder: Path) -> dict[str, Path]:
    """Every model at hand by name: a split one once, by its first part."""
    demo = demo_path()
    names = {} if demo is None else {DEMO: demo}
    if folder.is_dir():
        names.update(_models(folder))
    return names


def readable_names(folder: Path) -> list[str]:
    """The names of models whose files are not damaged, as far as their headers tell."""
    return [name for name, path in known_names(folder).items() if is_readable(path)]


def best_installed(folder: Path, room: int) -> str | None:
    """The largest model in the folder that fits into room bytes; the best guess without tests."""
    sizes = {
        name: (_size(path), path)
        for name, path in known_names(folder).items()
        if name != DEMO and path.is_file()
    }
    largest_first = sorted(sizes, key=lambda name: sizes[name][0], reverse=True)
    fitting = (name for name in largest_first if sizes[name][0] < room)
    return next((name for name in fitting if is_readable(sizes[name][1])), None)


def model_in(folder: Path) -> Path | None:
    """What a folder means: itself where it is an MLX model, else its one GGUF file or split set."""
    if is_mlx_folder(folder):
        return folder
    firsts = [path for path in sorted(folder.glob("*.gguf")) if _is_first(path)]
    return firsts[0] if len(firsts) == 1 else None


def gguf_files(folder: Path) -> list[Path]:
    """Every GGUF file in the folder and the folders below it, first parts only."""
    found = (path for depth in _DEPTHS for path in sorted(folder.glob(depth)))
    return [path for path in found if _is_first(path)]


def is_readable(path: Path) -> bool:
    """Whether a model's header, or its folder, tells of no damage."""
    try:
        if path.is_dir():
            read_mlx_folder(path)
        else:
            read_header(path)
    except ModelError:
        return False
    return True


def _models(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            inside = model_in(path)
            if inside is not None:
                yield path.name, inside
        elif path.suffix == ".gguf" and _is_first(path):
            yield path.stem.partition("-00001-of-")[0], path


def _is_first(path: Path) -> bool:
    return path.is_file() and parts(path)[0] == path


def _size(path: Path) -> int:
    return sum(part.stat().st_size for part in parts(path) if part.is_file())
