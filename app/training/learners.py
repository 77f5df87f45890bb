"""What each method trains, and the files that it makes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.paths import Paths
from app.training.bases import base_of, is_own_copy
from app.training.plan import Method
from app.training.run import Order
from backends.base.safe_files import make_private_folder
from backends.engines.backend_selection import LLAMACPP
from training.arrays import Arrays
from training.distil import Distilled
from training.export import export
from training.heads.next_token import NextToken
from training.net import Net
from training.nets import n_parameters, open_net, peak_bytes
from training.samples import SampleCache
from training.settings import TrainSettings
from training.source import read_source

Stored = dict[str, NDArray[np.float32]]

_LEARNING, _SCORED = 4, 150_000
"""Copies in memory of what learns, and bytes of a token of a step of a whole drafter, which scores
some 12,000 tokens."""

_RANK, _GENTLE = 32, 1e-4
"""Of the changes to a model that is distilled, and the rate of layers that were trained before."""


@dataclass(frozen=True, slots=True)
class Learner:
    """A net, and what becomes of its weights.

    write: makes a folder of its files. weight_bytes: of what is trained. peak_bytes: memory of a
    step.
    """

    net: Net
    write: Callable[[Stored, Path], None]
    weight_bytes: int
    peak_bytes: int


def learner_of(
    order: Order,
    target: Path,
    paths: Paths,
    folder: Path,
    cache: SampleCache,
    settings: TrainSettings,
    arrays: Arrays,
) -> Learner:
    """folder: of the run, for a copy of the model that is to be distilled.

    Raises:
        SpecchatError: the model, or the drafter to be distilled, is of an unknown form.
    """
    if order.method in (Method.DISTIL, Method.MTP):
        if order.method is Method.MTP:
            net, name = NextToken(arrays, target, settings), f"mtp-{target.stem}.gguf"
        else:
            base = base_of(order.base, target, paths.models, folder)
            net, name = Distilled(arrays, base, settings), f"{target.stem}-distilled.gguf"
        size = 4 * sum(values.size for values in net.first_weights().values())
        peak = _LEARNING * size + net.stored_bytes + settings.batch_tokens * _SCORED
        return Learner(net, partial(_written, net.write, name), size, peak)
    source, taps = read_source(target), len(cache.facts.taps)
    net = open_net(source, cache, settings, arrays)
    size = 4 * n_parameters(source, settings, taps)
    return Learner(net, partial(export, net), size, peak_bytes(source, settings, taps + 1))


def _written(
    write: Callable[[Stored, Path], None], name: str, weights: Stored, folder: Path
) -> None:
    make_private_folder(folder)
    write(weights, folder / name)


def settings_of(order: Order, usual: TrainSettings) -> TrainSettings:
    """Those of a method, from the usual ones."""
    if order.method is Method.MTP:
        return replace(usual, rate=_GENTLE, acceptance=0.5)
    if order.method is Method.DISTIL:
        return replace(usual, rank=0 if is_own_copy(order.base) else _RANK, acceptance=0.5)
    return usual


def drafting_file(folder: Path, engine: str) -> Path:
    """What drafts, among the files that were written: the folder itself for MLX."""
    files = sorted(folder.glob("*.gguf"))
    return files[0] if files and engine == LLAMACPP else folder


def spec_of(method: Method, file: Path) -> str:
    """The word for `--draft`."""
    word = {Method.MEDUSA: Method.HYDRA, Method.DISTIL: ""}.get(method, method)
    return f"{word}:{file}" if word else str(file)
