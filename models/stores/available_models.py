"""Available models: the bundled one, and those found on this machine."""

from collections.abc import Sequence
from pathlib import Path

from backends.base import ModelError
from backends.engines.backend_selection import Form, form_of
from backends.files.gguf_header import parts, read_header
from backends.files.mlx_folder import is_mlx_folder, read_mlx_folder
from models.metadata.trained_drafters import drafter_alone
from models.stores.bundled import demo_path
from models.stores.installed_model import Installed, Origin
from models.stores.store_folders import Places
from models.stores.store_scan import installed_models

DEMO = "demo"


def installed(folder: Path) -> list[Installed]:
    """All available models, the bundled one first; folder: the user's models folder."""
    demo = demo_path()
    bundled = [Installed(DEMO, demo, demo.stat().st_size, Origin.BUNDLED)] if demo else []
    return [*bundled, *installed_models(Places.of_environment(folder))]


def known_names(folder: Path) -> dict[str, Path]:
    """Paths of all available models by name; of a split one the first part."""
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
    firsts = [path for path in sorted(folder.glob("*.gguf")) if _is_first(path)]
    return firsts[0] if len(firsts) == 1 else None


def is_readable(path: Path) -> bool:
    """Whether a model's header or folder can be read; a drafter trained for one is no model."""
    if drafter_alone(path) is not None:
        return False
    try:
        if path.is_dir():
            read_mlx_folder(path)
        else:
            for part in parts(path):
                read_header(part)
    except ModelError:
        return False
    return True


def _is_first(path: Path) -> bool:
    return path.is_file() and parts(path)[0] == path
