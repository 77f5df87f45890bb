"""Models that the user agreed to have read from disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from models.json_file import change_object, read_object

_SCHEMA = 1
_MOST = 1000


@dataclass(frozen=True, slots=True)
class AgreedModels:
    """The record in a file; damaged entries are ignored."""

    file: Path

    def has(self, model: Path) -> bool:
        """Whether the user agreed to stream the model at a path."""
        return str(model.resolve()) in _paths(read_object(self.file))

    def add(self, model: Path) -> None:
        """Record that the user agreed."""
        added = str(model.resolve())

        def changed(before: dict[str, Any]) -> dict[str, Any]:
            others = [path for path in _paths(before) if path != added]
            return {"schema": _SCHEMA, "models": [*others, added][-_MOST:]}

        change_object(self.file, changed)


def _paths(record: dict[str, Any]) -> list[str]:
    paths = record.get("models") if record.get("schema") == _SCHEMA else None
    return [str(path) for path in cast("list[Any]", paths)] if isinstance(paths, list) else []
