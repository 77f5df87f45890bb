"""Models that the user agreed to have read from disk."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from models.json_file import change_object, read_object

_SCHEMA = 1
_MOST = 1000

_unrecorded: set[tuple[Path, str]] = set()
"""What could not be recorded, as record and model, such as on a disk that is full: it holds until
this process ends."""


@dataclass(frozen=True, slots=True)
class AgreedModels:
    """The record in a file; damaged entries are ignored, and so is one that cannot be read."""

    file: Path

    def has(self, model: Path) -> bool:
        """Whether the user agreed to stream the model at a path."""
        path = os.path.realpath(model)
        return path in _paths(read_object(self.file)) or (self.file, path) in _unrecorded

    def add(self, model: Path) -> None:
        """Record that the user agreed, or else remember it until this process ends."""
        added = os.path.realpath(model)

        def changed(before: dict[str, Any]) -> dict[str, Any]:
            others = [path for path in _paths(before) if path != added]
            return {"schema": _SCHEMA, "models": [*others, added][-_MOST:]}

        change_object(self.file, changed)
        if added not in _paths(read_object(self.file)):
            _unrecorded.add((self.file, added))


def _paths(record: dict[str, Any]) -> list[str]:
    paths = record.get("models") if record.get("schema") == _SCHEMA else None
    return [str(path) for path in cast("list[Any]", paths)] if isinstance(paths, list) else []
