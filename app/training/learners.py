"""What each method trains, and the files that it makes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.paths import Paths
from app.training.plan import Method
from app.training.run import Order
from backends.base import UsageError
from backends.engines.backend_selection import LLAMACPP
from training.arrays import Arrays
from training.export import export
from training.net import Net
from training.nets import n_parameters, open_net, peak_bytes
from training.samples import SampleCache
from training.settings import TrainSettings
from training.source import read_source

Stored = dict[str, NDArray[np.float32]]


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
        raise UsageError(f"--method {order.method} is not there yet", "it comes next")
    del paths, folder
    source, taps = read_source(target), len(cache.facts.taps)
    net = open_net(source, cache, settings, arrays)
    size = 4 * n_parameters(source, settings, taps)
    return Learner(net, partial(export, net), size, peak_bytes(source, settings, taps + 1))


def settings_of(order: Order, usual: TrainSettings) -> TrainSettings:
    """Those of a method, from the usual ones."""
    del order
    return usual


def drafting_file(folder: Path, engine: str) -> Path:
    """What drafts, among the files that were written: the folder itself for MLX."""
    files = sorted(folder.glob("*.gguf"))
    return files[0] if files and engine == LLAMACPP else folder


def spec_of(method: Method, file: Path) -> str:
    """The word for `--draft`."""
    word = {Method.MEDUSA: Method.HYDRA, Method.DISTIL: ""}.get(method, method)
    return f"{word}:{file}" if word else str(file)
