"""What a folder holds that may be a head: its settings, and its tensors with their shapes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.base import ModelError
from backends.files.head_folders.settings import Settings
from backends.files.mlx_folder import REMEDY, read_settings
from backends.files.safetensors_header import StoredTensor, stored_tensors

CONFIG = "config.json"
_SUFFIX = "*.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth")
_MOST_FILES = 512


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A folder's settings as they are written, its tensors by name, and the file of each."""

    path: Path
    settings: Settings
    tensors: Mapping[str, StoredTensor]
    files: Mapping[str, Path]
    pickles: tuple[str, ...] = ()
    """Weight files that are programs of Python's, which are never run."""

    def renamed(self, rename: Callable[[str], str]) -> dict[str, str]:
        """Names of tensors by common names, of those that have one.

        Raises:
            ValueError: two of them have the same.
        """
        names: dict[str, str] = {}
        for name in self.tensors:
            common = rename(name)
            if common and common in names:
                raise ValueError(f"tensors {names[common][:64]} and {name[:64]} are the same part")
            if common:
                names[common] = name
        return names


def read_head(path: Path) -> StoredHead:
    """Read a folder's config.json, and the headers of its weight files.

    Raises:
        ModelError: a file is missing, unreadable, damaged or cut short.
    """
    if not path.is_dir():
        raise ModelError(f"there is no folder {path}")
    if not (path / CONFIG).is_file():
        raise ModelError(f"cannot read {path / CONFIG}", "it is missing", REMEDY)
    settings = Settings(read_settings(path / CONFIG))
    tensors: dict[str, StoredTensor] = {}
    files: dict[str, Path] = {}
    weights = sorted(path.glob(_SUFFIX))
    if len(weights) > _MOST_FILES:
        raise ModelError(f"cannot read {path}", f"it has {len(weights):,} weight files")
    for file in weights:
        held = stored_tensors(file)
        if twice := held.keys() & tensors.keys():
            name = min(twice)
            why = f"tensor {name[:64]} is also in {files[name].name}"
            raise ModelError(f"{file} does not belong to the rest of {path.name}", why, REMEDY)
        tensors |= held
        files |= dict.fromkeys(held, file)
    pickles = sorted(file.name for kind in _PICKLES for file in path.glob(kind))
    return StoredHead(path, settings, tensors, files, tuple(pickles))
