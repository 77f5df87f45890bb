"""The best self-drafter recipe found by tuning, and results of a tuning that goes on."""

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.learned.store import number, parsed, recipe_key
from app.paths import Paths
from backends.base import DiskFullError, ModelInfo
from backends.base.safe_files import FILE_MODE, make_private_folder, open_regular, write_whole
from backends.engines.model_loading import derives
from decoding.checks.agreement import Reply
from models.bounded_files import read_object
from models.self_draft.recipe import Recipe, require_cut
from models.tuning.recipe_gain import prospect
from models.tuning.recipe_search import Tried

SCHEMA = 1
"""Of a recipe, and of each line of results."""

_LONGEST, _MOST_LINES = 1 << 20, 10_000
"""Limits on bytes and lines read of results; they usually have a few thousand bytes."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best recipe and its measurements.

    draw_cost: cost of one drafted token, in plain steps.
    """

    recipe: Recipe
    acceptance: float
    draw_cost: float


def own_recipe(info: ModelInfo, paths: Paths) -> Recipe:
    """Default recipe of `self`: the tuned one, else the one with the highest expected gain."""
    best = tuned(info, paths)
    return best.recipe if best else prospect(info).recipe


def tuned(info: ModelInfo, paths: Paths) -> Tuned | None:
    """The tuned recipe of a model; None if it was not tuned or the file is invalid."""

    def parse(kept: dict[str, Any]) -> Tuned:
        best = Tuned(Recipe.parse(str(kept["recipe"])), *_measured(kept))
        best.recipe.check(info.name, info.n_layers, info.active_experts)
        if not derives(info):
            require_cut(info, best.recipe.skipped_layers)
        if kept["schema"] != SCHEMA or kept["key"] != recipe_key(info):
            raise ValueError
        return best

    return parsed(parse, read_object(tuned_file(info, paths)))


def _measured(entry: dict[str, Any]) -> tuple[float, float]:
    return number(entry["acceptance"], 1.0), number(entry["draw_cost"], is_positive=True)


def remember(best: Tuned, info: ModelInfo, paths: Paths) -> None:
    """Save the result of tuning, replacing any earlier one.

    Raises:
        DiskFullError: it cannot be written.
    """
    path = tuned_file(info, paths)
    measured = {"acceptance": best.acceptance, "draw_cost": best.draw_cost}
    entry = {"schema": SCHEMA, "key": recipe_key(info), "recipe": best.recipe.text, **measured}
    try:
        make_private_folder(path.parent)
        write_whole(path, json.dumps(entry))
    except OSError as error:
        what, rest = "the tuned recipe cannot be saved", "no measurement is repeated"
        raise _unsaved(what, rest, path, error) from error


def _unsaved(what: str, rest: str, path: Path, error: OSError) -> DiskFullError:
    why = f"{path.parent}: {error.strerror or error}"
    return DiskFullError(what, why, f"Free some space and repeat the command: {rest}.")


def tuned_file(info: ModelInfo, paths: Paths) -> Path:
    return paths.recipes / f"{recipe_key(info)}.json"


def set_aside_unusable(info: ModelInfo, paths: Paths, say: Callable[[str], None]) -> None:
    """Move an unusable file aside and report it; this happens once."""
    path = tuned_file(info, paths)
    if not path.exists() or tuned(info, paths):
        return
    with contextlib.suppress(OSError):
        path.replace(path.with_suffix(".unusable"))
        say(f"the tuned recipe of {info.name} cannot be used: set aside, {path.stem}.unusable")


class TuningResults:
    """Results of one model with one engine, device and threads, those of earlier runs first.

    Each is one line of JSON, appended atomically, so that two processes may tune at once. say: gets
    a line if some are unusable; they are set aside and measured again.
    """

    def __init__(self, info: ModelInfo, paths: Paths, say: Callable[[str], None]) -> None:
        self._info = info
        self._key = recipe_key(info)
        self.path = paths.tuning / f"{self._key}.jsonl"
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
        told = {"failed": result} if isinstance(result, str) else asdict(result)
        self._add({"recipe": recipe.text, **told})

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _add(self, entry: dict[str, Any]) -> None:
        line = json.dumps({"schema": SCHEMA, "key": self._key, **entry}) + "\n"
        try:
            append_line(self.path, line.encode())
        except OSError as error:
            what, rest = "the measurements cannot be saved", "it measures the rest"
            raise _unsaved(what, rest, self.path, error) from error

    def _read(self, say: Callable[[str], None]) -> None:
        try:
            with open_regular(self.path) as file:
                kept, is_longer = file.read(_LONGEST), bool(file.read(1))
        except FileNotFoundError:
            return
        except OSError:
            kept, is_longer = b"", True
        lines = [line for line in kept.split(b"\n", _MOST_LINES) if line]
        sound = [line for line in lines if parsed(self._take, line)]
        if len(sound) == len(lines) and not is_longer:
            return
        with contextlib.suppress(OSError):
            self.path.replace(self.path.with_suffix(".unusable"))
            append_line(self.path, b"".join(line + b"\n" for line in sound))
        say("some earlier measurements cannot be used: they are repeated")

    def _take(self, line: bytes) -> bool:
        """Add a line if it is of this model and version; return whether it is."""
        entry = json.loads(line)
        if entry["schema"] != SCHEMA or entry["key"] != self._key:
            return False
        if "replies" in entry:
            replies = [self._reply(*stored) for stored in entry["replies"]]
            self.replies = self.replies or replies
            return True
        recipe, info = Recipe.parse(entry["recipe"]), self._info
        recipe.check(info.name, info.n_layers, info.active_experts)
        result = str(entry["failed"]) if "failed" in entry else Tried(*_measured(entry))
        self.tried.setdefault(recipe, result)
        return True

    def _reply(self, prompt: Sequence[Any], said: Sequence[Any]) -> Reply:
        reply = Reply(tuple(map(int, prompt)), tuple(map(int, said)))
        in_range = all(0 <= token < self._info.n_vocab for token in reply.prompt + reply.said)
        if not (reply.prompt and reply.said and in_range):
            raise ValueError
        return reply


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
