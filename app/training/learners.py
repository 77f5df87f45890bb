"""What each method trains, and the files that it makes."""

from dataclasses import replace
from pathlib import Path

from app.training.plan import Method
from app.training.run import Order
from backends.base import DraftUnavailableError, UsageError
from backends.base.safe_files import put_in_place
from backends.files.gguf_header import parts, read_header
from models.reference import at_hand, resolve
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from training.arrays import Arrays
from training.distil import Distilled, check_layers
from training.heads.eagle3 import Eagle3
from training.heads.last_state import LastState
from training.heads.next_token import NextToken
from training.net import Net
from training.samples import SampleCache
from training.settings import TrainSettings
from training.source import read_source

_RANK, _GENTLE = 32, 1e-4
"""Of the changes to a model that is distilled, and the rate of layers that were trained before."""

_KEPT = 4
"""Layers kept at either end of a model's copy: of 30 of the bundled one. With the first and last
ones what the embedding says and the output reads stays (docs/how-it-works/training.md)."""


def net_of(
    order: Order,
    target: Path,
    models: Path,
    cache: SampleCache,
    settings: TrainSettings,
    arrays: Arrays,
) -> Net:
    """What a method trains.

    models: the user's folder of models. cache: in a run's folder, beside which a copy is made.

    Raises:
        SpecchatError: the model, or the drafter to be distilled, is of an unknown form.
    """
    if order.method is Method.MTP:
        return NextToken(arrays, target, settings)
    if order.method is Method.DISTIL:
        base = base_of(order.base, target, models, cache.folder.parent)
        return Distilled(arrays, base, settings)
    head = Eagle3 if order.method is Method.EAGLE3 else LastState
    return head(arrays, settings, read_source(target), cache)


def settings_of(order: Order, steps: int, batch_tokens: int) -> TrainSettings:
    usual = TrainSettings(
        method=order.method, steps=steps, batch_tokens=batch_tokens, seed=order.seed
    )
    if order.method is Method.MTP:
        return replace(usual, rate=_GENTLE, acceptance=0.5, noise=0.0)
    if order.method is Method.DISTIL:
        return replace(usual, rank=_RANK if order.base else 0, acceptance=0.5)
    return usual


def spec_of(method: Method, file: Path) -> str:
    """The word for `--draft`."""
    word = {Method.MEDUSA: Method.HYDRA, Method.DISTIL: ""}.get(method, method)
    return f"{word}:{file}" if word else str(file)


def base_of(base: str, target: Path, models: Path, folder: Path) -> Path:
    """The file of the drafter that is distilled.

    base: a model; the first and last layers of the target if it is empty. models: the user's folder
    of models. folder: for a copy, which is made once.

    Raises:
        DraftUnavailableError: it cannot be distilled, or has another vocabulary.
        ModelError: it is not installed, or damaged.
        UsageError: no such model, or one of too few layers.
    """
    if target.is_dir():
        what, why = f"{target.name} cannot be distilled from", "it is a folder for MLX"
        raise DraftUnavailableError(what, why, "MLX runs what is distilled from its GGUF file.")
    if not base:
        return _copy(target, folder / "base.gguf")
    path = at_hand(resolve(base, models)).path
    if path.is_dir() or _n_vocab(path) != _n_vocab(target):  # drafting compares the tokens too
        why = "it is a folder for MLX" if path.is_dir() else "its vocabulary is another one"
        what = f"{path.name} cannot be distilled for {target.name}"
        raise DraftUnavailableError(what, why, "Use a small model of the same family.")
    return path


def _n_vocab(path: Path) -> int:
    return read_header(parts(path)[0]).n_vocab


def _copy(target: Path, place: Path) -> Path:
    """The target without the layers between."""
    check_layers(target)
    layers = read_header(parts(target)[0]).integer("block_count")
    if layers <= 2 * _KEPT:
        why = f"it has {layers} layers, and {2 * _KEPT} are kept"
        raise UsageError("the model has too few layers for a smaller copy", why, "Use --from.")
    if not place.exists():
        store, recipe = SelfDrafts(place.parent), Recipe.parse(f"skip={_KEPT}-{layers - _KEPT - 1}")
        with store.temporary() as partial:
            store.write(target, partial, recipe, lambda _done, _total: None)
            put_in_place(partial, place)
    return place
