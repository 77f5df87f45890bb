"""Records of what was measured here: one JSON file each, absent if malformed, with their keys."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from app.values import mapping
from backends.base import ModelInfo, SpecchatError
from backends.engines.engine_facts import Runner
from models.bounded_files import change_object, read_object, write_object
from models.metadata.identity import fingerprint

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Store(Generic[T]):
    """A record in a file. schema: its version, None if it has none.

    parse makes a record of an object and raises any of MALFORMED; text is the reverse of it.
    """

    path: Path
    schema: int | None
    parse: Callable[[dict[str, Any]], T]
    text: Callable[[T], dict[str, Any]]

    def read(self) -> T | None:
        """The record; None if there is none, or it is malformed or of another version."""
        return self._parsed(read_object(self.path))

    def write(self, value: T) -> None:
        """Replace the record; a failure is ignored."""
        write_object(self.path, self._object(value))

    def change(self, change: Callable[[T | None], T]) -> T:
        """Replace the record by the result of change, which is returned; processes take turns."""
        found: list[T] = []

        def changed(before: dict[str, Any]) -> dict[str, Any]:
            found.append(change(self._parsed(before)))
            return self._object(found[-1])

        change_object(self.path, changed)
        return found[-1]

    def _parsed(self, value: dict[str, Any]) -> T | None:
        if self.schema is not None and value.get("schema") != self.schema:
            return None
        return parsed(self.parse, value)

    def _object(self, value: T) -> dict[str, Any]:
        version = {} if self.schema is None else {"schema": self.schema}
        return version | self.text(value)


MALFORMED = (
    AttributeError, LookupError, OverflowError, RecursionError, SpecchatError, TypeError,
    ValueError,
)  # fmt: skip


def parsed(parse: Callable[[Any], T], value: object) -> T | None:
    """What is made of a stored value; None if it is malformed."""
    try:
        return parse(value)
    except MALFORMED:
        return None


def latest(parse: Callable[[Any], T], value: object, most: int) -> dict[str, T]:
    """The last sound entries of a stored object, by key."""
    found = {key: parsed(parse, entry) for key, entry in [*mapping(value).items()][-most:]}
    return {key: entry for key, entry in found.items() if entry is not None}


def number(value: Any, most: float = math.inf, *, is_positive: bool = False) -> float:
    """A stored number that is finite and at least 0.

    Raises:
        TypeError, ValueError: it is not, or more than most.
    """
    found = float(value)
    if not 0.0 <= found <= most or found == math.inf or (is_positive and not found):
        raise ValueError(value)
    return found


def run_key(path: Path, variant: str, runner: Runner) -> str:
    """Filename-safe key of a model, and of what runs it: all that Runner tells.

    Raises:
        OSError: the files of the model cannot be read.
    """
    described = f"{runner.engine} {runner.device} {runner.threads}"
    if runner.streamed_tenths:
        described += f" streams {runner.streamed_tenths} tenths"
    if runner.cache_type:
        described += f" cache {runner.cache_type}"
    digest = hashlib.sha256(described.encode()).hexdigest()[:16]
    return f"{fingerprint(path, variant)}-{digest}"


def loaded_key(info: ModelInfo) -> str:
    """The run_key of a loaded model."""
    return run_key(info.path, info.variant, Runner.of(info))


def recipe_key(info: ModelInfo) -> str:
    """As loaded_key, but one for all shares that stream: a recipe's drafter changes them."""
    runner = Runner.of(info)
    runner = replace(runner, streamed_tenths=min(runner.streamed_tenths, 1))
    return run_key(info.path, info.variant, runner)
