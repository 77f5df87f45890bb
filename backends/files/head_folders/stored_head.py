"""A folder that may be a head: its settings, which nobody has checked, and its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from backends.base import ModelError
from backends.files.mlx_folder import REMEDY, StoredTensor, read_settings, stored_tensors

T = TypeVar("T")

_MOST = 1 << 32


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by key; null counts as missing.

    A value of another type than is asked for raises a ValueError that tells it in words.
    """

    values: Mapping[str, Any]

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def count(self, key: str, default: int = 0) -> int:
        value = self._value(key, default)
        if not 0 <= value < _MOST:
            raise _wrong(key, value)
        return value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if type(value) is not int:
            value = self._value(key, default)
        if not abs(value) < _MOST:
            raise _wrong(key, value)
        return float(value)

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if value <= 0.0:
            raise _wrong(key, value)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        return self._value(key, default)

    def text(self, key: str) -> str:
        return self._value(key, "")

    def counts(self, key: str) -> tuple[int, ...]:
        listed = self._value(key, list[Any]())
        if not all(type(one) is int and 0 <= one < _MOST for one in listed):
            raise _wrong(key, listed)
        return tuple(listed)

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(map(str, self._value(key, list[Any]())))

    def part(self, key: str) -> "Settings":
        """Settings of a part, none if it is missing."""
        return Settings(self._value(key, dict[str, Any]()))

    def under(self, other: "Settings") -> "Settings":
        return Settings({**self.values, **other.values})

    def _value(self, key: str, default: T) -> T:
        """The value of a key, of the same type as the default."""
        value = self.values.get(key)
        if value is not None and type(value) is not type(default):
            raise _wrong(key, value)
        return default if value is None else value


def _wrong(key: str, value: object) -> ValueError:
    return ValueError(f"{key} in its config.json is {str(value)[:40]!r}")


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
        """Names of tensors by common names, of those that have one."""
        names: dict[str, str] = {}
        for name in self.tensors:
            common = rename(name)
            if common and common in names:
                raise ValueError(f"tensors {names[common][:64]} and {name[:64]} are the same part")
            if common:
                names[common] = name
        return names


def read_head(path: Path) -> StoredHead:
    """Read a folder's config.json, and the headers of its weight files."""
    if not path.is_dir():
        raise ModelError(f"no folder {path}")
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
