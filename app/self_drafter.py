"""The drafter that is made of its target: what it will take, and making it of loaded weights."""

from collections.abc import Callable
from dataclasses import replace

from backends.base import Model, ModelInfo
from backends.derivation import derive, derives
from models.fingerprint import fingerprint
from models.model_facts import ModelFacts, facts_of
from models.recipe import Recipe

_FILE_BITS = {"q4_0": 4.5, "q2_k": 2.6}
_GROUP = 64
"""Weights that share a scale and an offset, where they are made in memory."""


def read_bytes(info: ModelInfo, recipe: Recipe) -> int:
    """About the weights that one of its tokens reads."""
    kept = 1.0 - len(recipe.skipped_layers) / max(info.n_layers, 1)
    if recipe.bits is None:
        return round(kept * info.bytes_read_per_token)
    if derives(info):
        number_bytes = facts_of(info.path, info.backend).attention.number_bytes
        bits = recipe.bits + 2 * 8 * number_bytes / _GROUP
    else:
        bits = _FILE_BITS[recipe.quantization or "q4_0"]
    return round(kept * info.parameters * bits / 8)


def added_bytes(info: ModelInfo, recipe: Recipe) -> int:
    """About the weights that it takes beside its target's."""
    return 0 if derives(info) and recipe.bits is None else read_bytes(info, recipe)


def facts(info: ModelInfo, recipe: Recipe) -> ModelFacts:
    """What the memory bill needs to know of one that is made of loaded weights.

    Raises:
        ModelError: the target's files cannot be read.
        UsageError: the recipe does not fit the model.
    """
    recipe.check(info.name, info.n_layers)
    return replace(facts_of(info.path, info.backend), weight_bytes=added_bytes(info, recipe))


def key(info: ModelInfo, recipe: Recipe) -> str:
    """By which what was learned of one that is made of loaded weights is remembered."""
    return fingerprint(info.path, recipe.slug)


def made(target: Model, recipe: Recipe, notify: Callable[[str], None]) -> Model:
    """Make one of loaded weights.

    Raises:
        DraftUnavailableError: it cannot be made of this model.
    """
    copy = f" (a copy in {recipe.bits} bits)" if recipe.bits else ""
    words = f"making the self-drafter {recipe.slug}{copy}"
    notify(words)
    return derive(
        target,
        recipe.slug,
        recipe.bits,
        recipe.skipped_layers,
        lambda done, total: notify(f"{words}: {done} of {total}"),
    )
