"""The best self-drafter recipe found by tuning, and results of a tuning that goes on."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.learned.store import number, parsed, recipe_key
from app.paths import Paths
from app.values import mapping
from backends.base import DiskFullError, ModelInfo
from backends.base.safe_files import make_private_folder, write_whole
from backends.engines.model_loading import derives
from decoding.checks.agreement import Reply
from models.bounded_files import read_object
from models.self_draft.recipe import Recipe, require_cut
from models.tuning.recipe_search import Tried, prospect

SCHEMA = 1
"""Of a recipe, and of results."""


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
    measured = {"acceptance": best.acceptance, "draw_cost": best.draw_cost}
    entry = {"key": recipe_key(info), "recipe": best.recipe.text, **measured}
    what, rest = "the tuned recipe cannot be saved", "no measurement is repeated"
    _write(tuned_file(info, paths), entry, what, rest)


def _write(path: Path, entry: dict[str, Any], what: str, rest: str) -> None:
    try:
        make_private_folder(path.parent)
        write_whole(path, json.dumps({"schema": SCHEMA} | entry))
    except OSError as error:
        why = f"{path.parent}: {error.strerror or error}"
        remedy = f"Free some space and repeat the command: {rest}."
        raise DiskFullError(what, why, remedy) from error


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

    Each is written at once, beside what another process has written meanwhile. What is unusable is
    measured again.
    """

    def __init__(self, info: ModelInfo, paths: Paths) -> None:
        self._info = info
        self.path = paths.tuning / f"{recipe_key(info)}.json"
        self.tried: dict[Recipe, Tried | str] = {}
        """Measurement of a recipe, or the reason why it yields no drafter."""
        self.replies: list[Reply] = []
        self._read()

    def add_replies(self, replies: Sequence[Reply]) -> None:
        """Save the replies of the model.

        Raises:
            DiskFullError: it cannot be written.
        """
        self.replies = list(replies)
        self._write()

    def add(self, recipe: Recipe, result: Tried | str) -> None:
        """Save the measurement of a recipe, or the reason why it yields no drafter.

        Raises:
            DiskFullError: it cannot be written.
        """
        self.tried[recipe] = result
        self._read()
        self._write()

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        tried = {
            recipe.text: {"failed": result} if isinstance(result, str) else asdict(result)
            for recipe, result in self.tried.items()
        }
        replies = [[reply.prompt, reply.said] for reply in self.replies]
        kept = {"replies": replies, "tried": tried}
        _write(self.path, kept, "the measurements cannot be saved", "it measures the rest")

    def _read(self) -> None:
        """Add what the file holds to what is known."""
        kept = read_object(self.path)
        if kept.get("schema") != SCHEMA:
            return
        self.replies = self.replies or parsed(self._replies, kept.get("replies")) or []
        for entry in mapping(kept.get("tried")).items():
            if (found := parsed(self._result, entry)) is not None:
                self.tried.setdefault(*found)

    def _result(self, entry: tuple[str, Any]) -> tuple[Recipe, Tried | str]:
        text, told = entry
        recipe, info = Recipe.parse(text), self._info
        recipe.check(info.name, info.n_layers, info.active_experts)
        return recipe, str(told["failed"]) if "failed" in told else Tried(*_measured(told))

    def _replies(self, stored: Any) -> list[Reply]:
        replies = [Reply(tuple(map(int, prompt)), tuple(map(int, said))) for prompt, said in stored]
        for reply in replies:
            in_range = all(0 <= token < self._info.n_vocab for token in reply.prompt + reply.said)
            if not (reply.prompt and reply.said and in_range):
                raise ValueError
        return replies
