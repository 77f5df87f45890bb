"""Stores intermediate results of tuning, so that an interrupted run can be resumed.

One line of JSON for each result, added whole: two processes that tune at once lose nothing.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from app.learned.tuning_key import tuning_key
from app.paths import Paths
from backends.base import DiskFullError, ModelInfo, UsageError
from backends.base.private_file import FILE_MODE, make_private_folder
from backends.base.regular_file import open_regular
from decoding.checks.agreement import Reply
from models.self_draft.recipe import Recipe
from models.tuning.recipe_search import Tried

SCHEMA = 1
_LONGEST, _MOST_LINES = 1 << 20, 10_000
"""Limits on bytes and lines read; such a file usually has a few thousand bytes."""


class TuningResults:
    """The results of one model at one place, those of earlier runs first.

    say: gets a line where some could not be used; they are set aside and measured anew.
    """

    def __init__(self, info: ModelInfo, paths: Paths, say: Callable[[str], None]) -> None:
        self.path = paths.tuning / f"{tuning_key(info)}.jsonl"
        self._info = info
        self._key = tuning_key(info)
        self.tried: dict[Recipe, Tried | str] = {}
        """Measurement of a recipe, or the reason why it yields no drafter."""
        self.replies: list[Reply] = []
        self._read(say)

    def add_replies(self, replies: Sequence[Reply]) -> None:
        """Save the replies of the model.

        Raises:
            DiskFullError: it cannot be written.
        """
        self.replies = list(replies)
        self._add({"replies": [[one.prompt, one.said] for one in replies]})

    def add(self, recipe: Recipe, found: Tried | str) -> None:
        """Save the measurement of a recipe, or the reason why it yields no drafter.

        Raises:
            DiskFullError: it cannot be written.
        """
        self.tried[recipe] = found
        if isinstance(found, str):
            self._add({"recipe": recipe.text, "failed": found})
        else:
            measured = {"acceptance": found.acceptance, "draw_cost": found.draw_cost}
            self._add({"recipe": recipe.text, **measured})

    def remove(self) -> None:
        """Delete the results once tuning is complete."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _add(self, entry: dict[str, Any]) -> None:
        line = json.dumps({"schema": SCHEMA, "key": self._key, **entry}) + "\n"
        try:
            append_line(self.path, line.encode())
        except OSError as error:
            raise DiskFullError(
                "what was measured cannot be kept",
                f"{self.path.parent}: {error.strerror or error}",
                "Free some space; the same command then measures the rest.",
            ) from error

    def _read(self, say: Callable[[str], None]) -> None:
        try:
            with open_regular(self.path) as file:
                kept, is_longer = file.read(_LONGEST), bool(file.read(1))
        except FileNotFoundError:
            return
        except OSError:
            kept, is_longer = b"", True
        lines = [line for line in kept.split(b"\n", _MOST_LINES) if line]
        sound = [line for line in lines if self._take(line)]
        if len(sound) == len(lines) and not is_longer:
            return
        with contextlib.suppress(OSError):
            self.path.replace(self.path.with_suffix(".unusable"))
            append_line(self.path, b"".join(line + b"\n" for line in sound))
        say("a part of what was measured earlier cannot be used: it is measured anew")

    def _take(self, line: bytes) -> bool:
        """Add a line if it is valid and of this model and version; return whether it is."""
        try:
            entry = json.loads(line)
            if entry["schema"] != SCHEMA or entry["key"] != self._key:
                return False
            if "replies" in entry:
                found = [self._reply(one) for one in entry["replies"]]
                self.replies = self.replies or found
                return True
            recipe = Recipe.parse(entry["recipe"])
            info = self._info
            recipe.check(info.name, info.n_layers, info.active_experts)
            self.tried.setdefault(recipe, _found(entry))
        except (
            AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
            UsageError,
        ):  # fmt: skip
            return False
        return True

    def _reply(self, kept: object) -> Reply:
        prompt, said = (tuple(map(int, part)) for part in cast("list[list[int]]", kept))
        if (
            not prompt
            or not said
            or not all(0 <= one < self._info.n_vocab for one in prompt + said)
        ):
            raise ValueError
        return Reply(prompt, said)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file atomically.

    Raises:
        OSError: it cannot be written.
    """
    make_private_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
    try:
        written = os.write(descriptor, line)
    finally:
        os.close(descriptor)
    if written < len(line):
        raise OSError(28, "No space left on device")


def _found(entry: dict[str, Any]) -> Tried | str:
    if "failed" in entry:
        return str(entry["failed"])
    found = Tried(float(entry["acceptance"]), float(entry["draw_cost"]))
    if not 0.0 <= found.acceptance <= 1.0 or not 0.0 < found.draw_cost < math.inf:
        raise ValueError
    return found
