"""Stores the best self-drafter recipe found by tuning, the default of `self`."""

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.learned.run_key import recipe_key
from app.paths import Paths
from backends.base import (
    DiskFullError,
    DraftUnavailableError,
    ModelError,
    ModelInfo,
    UsageError,
)
from backends.base.atomic_file import write_whole
from backends.base.private_file import make_private_folder
from backends.engines.model_loading import derives
from models.json_file import read_object
from models.self_draft.layer_cuts import require_cut
from models.self_draft.recipe import Recipe
from models.tuning.recipe_gain import prospect

SCHEMA = 1


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
    return _known(read_object(tuned_file(info, paths)), info)


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
        raise DiskFullError(
            "the tuned recipe cannot be saved",
            f"{path.parent}: {error.strerror or error}",
            "Free some space and repeat the command: no measurement is repeated.",
        ) from error


def tuned_file(info: ModelInfo, paths: Paths) -> Path:
    """Path of the stored recipe, by model, engine, device and threads."""
    return paths.recipes / f"{recipe_key(info)}.json"


def set_aside_unusable(info: ModelInfo, paths: Paths, say: Callable[[str], None]) -> None:
    """Move an unusable file aside and report it; this happens once."""
    path = tuned_file(info, paths)
    if not path.exists() or tuned(info, paths):
        return
    with contextlib.suppress(OSError):
        path.replace(path.with_suffix(".unusable"))
        say(f"the tuned recipe of {info.name} cannot be used: set aside, {path.stem}.unusable")


def _known(kept: dict[str, Any], info: ModelInfo) -> Tuned | None:
    """Parse a stored recipe; None if it is invalid for this model."""
    try:
        best = Tuned(
            Recipe.parse(str(kept["recipe"])), float(kept["acceptance"]), float(kept["draw_cost"])
        )
        best.recipe.check(info.name, info.n_layers, info.active_experts)
        if not derives(info):
            require_cut(info, best.recipe.skipped_layers)
    except (
        KeyError, TypeError, ValueError, OverflowError,
        DraftUnavailableError, ModelError, UsageError,
    ):  # fmt: skip
        return None
    sound = 0.0 <= best.acceptance <= 1.0 and 0.0 < best.draw_cost < math.inf
    is_ours = kept.get("schema") == SCHEMA and kept.get("key") == recipe_key(info)
    return best if sound and is_ours else None
