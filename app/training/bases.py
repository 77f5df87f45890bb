"""What is distilled: a small model of the same vocabulary, or the model itself with few layers."""

from pathlib import Path

from backends.base import DraftUnavailableError, UsageError
from backends.base.safe_files import put_in_place
from backends.files.gguf_header import parts, read_header
from models.reference import at_hand, resolve
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from training.distil import ARCHITECTURES

_OWN = "self"
_KEPT = 4
"""Layers kept at either end of a model's own copy: of 30 of the bundled one. With the first and
last ones what the embedding says and the output reads stays (docs/how-it-works/training.md)."""


def is_own_copy(base: str) -> bool:
    """Whether `--from` names the model itself, as it does by default."""
    return base in ("", _OWN) or base.startswith(f"{_OWN}:")


def base_of(base: str, target: Path, models: Path, folder: Path) -> Path:
    """The file of the drafter that is distilled.

    base: of `--from`, a model or a recipe of self-drafters; the first and last layers of the target
    if it is empty. models: the user's folder of models. folder: for a copy, which is made once.

    Raises:
        DraftUnavailableError: it cannot be distilled, or has another vocabulary.
        ModelError: it is not installed, or damaged.
        UsageError: no such model, or a recipe that does not fit.
    """
    if target.is_dir():
        what, why = f"{target.name} cannot be distilled from", "it is a folder for MLX"
        raise DraftUnavailableError(what, why, "MLX runs what is distilled from its GGUF file.")
    if is_own_copy(base):
        return _copy(base, target, folder / "base.gguf")
    path = at_hand(resolve(base, models)).path
    if path.is_dir() or _n_vocab(path) != _n_vocab(target):  # drafting compares the tokens too
        why = "it is a folder for MLX" if path.is_dir() else "its vocabulary is another one"
        what = f"{path.name} cannot be distilled for {target.name}"
        raise DraftUnavailableError(what, why, "Use a small model of the same family.")
    return path


def _n_vocab(path: Path) -> int:
    return read_header(parts(path)[0]).n_vocab


def _copy(base: str, target: Path, place: Path) -> Path:
    """The target with some layers, all of which are of one kind."""
    header = read_header(parts(target)[0])
    layers = header.integer("block_count")
    recipe = Recipe.parse(base.removeprefix(f"{_OWN}:") if ":" in base else _skipped(layers))
    recipe.check(target.name, layers)
    if header.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        why = f"it is a {header.architecture}; those that can: {known}"
        what = f"{target.name} cannot be distilled into a copy of itself"
        raise DraftUnavailableError(what, why, "Name a small model of its vocabulary: --from")
    if not place.exists():
        store = SelfDrafts(place.parent)
        with store.temporary() as partial:
            store.write(target, partial, recipe, lambda _done, _total: None)
            put_in_place(partial, place)
    return place


def _skipped(layers: int) -> str:
    if layers <= 2 * _KEPT:
        why = f"it has {layers} layers, and {2 * _KEPT} are kept"
        raise UsageError("the model has too few layers for a smaller copy", why, "Use --from.")
    return f"skip={_KEPT}-{layers - _KEPT - 1}"
