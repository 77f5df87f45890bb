"""Stores intermediate results of tuning, so that an interrupted run can be resumed.

Each result is one line of JSON, appended atomically, so that two processes may tune at once.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from app.learned.run_key import recipe_key
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
    """Results of one model with one engine, device and threads, those of earlier runs first.

    say: gets a line if some are unusable; they are set aside and measured again.
    """

    def __init__(self, info: ModelInfo, paths: Paths, say: Callable[[str], None]) -> None:
        self.path = paths.tuning / f"{recipe_key(info)}.jsonl"
        self._info = info
        self._key = recipe_key(info)
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
        self._add({"replies": [[reply.prompt, reply.said] for reply in replies]})

    def add(self, recipe: Recipe, result: Tried | str) -> None:
        """Save the measurement of a recipe, or the reason why it yields no drafter.

        Raises:
            DiskFullError: it cannot be written.
        """
        self.tried[recipe] = result
        if isinstance(result, str):
            self._add({"recipe": recipe.text, "failed": result})
        else:
            measured = {"acceptance": result.acceptance, "draw_cost": result.draw_cost}
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
                "the measurements cannot be saved",
                f"{self.path.parent}: {error.strerror or error}",
                "Free some space and repeat the command: it measures the rest.",
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
        say("some earlier measurements cannot be used: they are repeated")

    def _take(self, line: bytes) -> bool:
        """Add a line if it is valid and of this model and version; return whether it is."""
        try:
            entry = json.loads(line)
            if entry["schema"] != SCHEMA or entry["key"] != self._key:
                return False
            if "replies" in entry:
                replies = [self._reply(stored) for stored in entry["replies"]]
                self.replies = self.replies or replies
                return True
            recipe = Recipe.parse(entry["recipe"])
            info = self._info
            recipe.check(info.name, info.n_layers, info.active_experts)
            self.tried.setdefault(recipe, _result(entry))
        except (
            AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
            UsageError,
        ):  # fmt: skip
            return False
        return True

    def _reply(self, stored: object) -> Reply:
        prompt, reply = (tuple(map(int, part)) for part in cast(list[list[int]], stored))
        in_range = all(0 <= token < self._info.n_vocab for token in prompt + reply)
        if not (prompt and reply and in_range):
            raise ValueError
        return Reply(prompt, reply)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file atomically.

    Raises:
        OSError: it cannot be written.
    """
    make_private_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
    try:
        written = os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if written < len(line):
        raise OSError(28, "No space left on device")


def _result(entry: dict[str, Any]) -> Tried | str:
    if "failed" in entry:
        return str(entry["failed"])
    tried = Tried(float(entry["acceptance"]), float(entry["draw_cost"]))
    if not 0.0 <= tried.acceptance <= 1.0 or not 0.0 < tried.draw_cost < math.inf:
        raise ValueError
    return tried
