"""Models that the user agreed to have read from disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from models.json_file import change_object, read_object

_SCHEMA = 1
_MOST = 1000

_agreed_now: set[tuple[Path, str]] = set()
"""What this process was told, as record and model: the record may be on a disk that is full."""


@dataclass(frozen=True, slots=True)
class AgreedModels:
    """The record in a file; damaged entries are ignored."""

    file: Path

    def has(self, model: Path) -> bool:
        """Whether the user agreed to stream the model at a path."""
        path = str(model.resolve())
        return (self.file, path) in _agreed_now or path in _paths(read_object(self.file))

    def add(self, model: Path) -> None:
        """Record that the user agreed, at least until this process ends."""
        added = str(model.resolve())
        _agreed_now.add((self.file, added))

        def changed(before: dict[str, Any]) -> dict[str, Any]:
            others = [path for path in _paths(before) if path != added]
            return {"schema": _SCHEMA, "models": [*others, added][-_MOST:]}

        change_object(self.file, changed)


def _paths(record: dict[str, Any]) -> list[str]:
    paths = record.get("models") if record.get("schema") == _SCHEMA else None
    return [str(path) for path in cast("list[Any]", paths)] if isinstance(paths, list) else []
