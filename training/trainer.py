"""Training a net on samples: steps, checkpoints that go on to the same bits, the best one."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError, UsageError
from training.arrays import Array, Arrays, Weights
from training.files import packed, read, write
from training.net import Net
from training.samples import Sample, SampleCache
from training.settings import TrainSettings

_WARM_UP, _CLIP = 60, 0.5
_FIRST, _SECOND, _TINY, _DECAY = 0.9, 0.95, 1e-8, 0.01
"""Of AdamW; moments as in the paper of EAGLE-3."""
_VALIDATED = 20
"""One prompt in so many is held out, to choose among checkpoints."""
_MOST_VALIDATED = 64
_CHECKS = 10
"""Times that checkpoints are compared."""
_SAVED_EVERY = 30.0
"""Seconds of work that a killed process may lose."""


class DivergedError(ModelError):
    """Losses were no numbers any more."""

    def __init__(self, step: int, kept: bool) -> None:
        super().__init__(
            f"training stopped at step {step:,}",
            "the loss is no number any more",
            "What was best before is kept." if kept else "Train with a smaller rate.",
        )


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """A step that was made.

    accepted: tokens of a rolled-out draft that held-out answers have, in the mean, of the weights
    that are kept so far; None before the first ones.
    """

    step: int
    steps: int
    loss: float
    accepted: float | None


@dataclass(frozen=True, slots=True)
class _State:
    """All that going on depends on. accepted: of the best checkpoint."""

    step: int
    weights: Weights
    means: Weights
    squares: Weights
    accepted: float | None = None


def train(
    net: Net, cache: SampleCache, folder: Path, stop: Callable[[], bool] = lambda: False
) -> Iterator[TrainProgress]:
    """Train, from where a run in the folder was stopped; yields after each step.

    The best weights are in the folder then (weights_of). A run goes on to the same bits with the
    same settings and samples on the same machine with as many threads.

    Raises:
        DivergedError: losses were no numbers; the best weights before that are kept.
        UsageError: the answers are too few or too short.
        DiskFullError: a checkpoint cannot be written.
    """
    arrays, settings = net.arrays, net.settings
    split = _Split(cache, settings)
    state = _resumed(net, folder)
    saved = time.monotonic()
    for numbers in islice(split.batches(), state.step, settings.steps):
        if stop():
            _save(arrays, folder, state)
            return
        samples = split.samples(numbers)
        batch = net.prepared(samples, np.random.default_rng([settings.seed, state.step]))
        loss_of = partial(net.loss, batch, state.step / settings.steps)
        loss, gradients = arrays.value_and_gradients(loss_of, state.weights)
        length = float(sum((one * one).sum() for one in gradients.values())) ** 0.5
        if not math.isfinite(loss) or not math.isfinite(length):
            raise DivergedError(state.step + 1, kept=state.accepted is not None)
        state = _stepped(state, gradients, min(1.0, _CLIP / max(length, 1e-12)), settings)
        if state.step % max(settings.steps // _CHECKS, 1) == 0 or state.step == settings.steps:
            state = _checked(net, folder, split.validation, state)
            saved = -math.inf
        if time.monotonic() - saved > _SAVED_EVERY:
            _save(arrays, folder, state)
            saved = time.monotonic()
        yield TrainProgress(state.step, settings.steps, loss, state.accepted)


def rate_at(step: int, settings: TrainSettings) -> float:
    """Warm-up, then a cosine to 0. step: from 0."""
    warm = min(_WARM_UP, max(settings.steps // 10, 1))
    if step < warm:
        return settings.rate * (step + 1) / warm
    return settings.rate * (0.5 + 0.5 * math.cos(math.pi * (step - warm) / (settings.steps - warm)))


def _stepped(state: _State, gradients: Weights, scale: float, settings: TrainSettings) -> _State:
    """A step of AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101)."""
    rate, step = rate_at(state.step, settings), state.step + 1
    first, second = 1.0 - _FIRST**step, 1.0 - _SECOND**step
    weights, means, squares = dict[str, Array](), dict[str, Array](), dict[str, Array]()
    for name, old in state.weights.items():
        gradient = gradients[name] * scale
        means[name] = mean = state.means[name] * _FIRST + gradient * (1.0 - _FIRST)
        squared = gradient * gradient * (1.0 - _SECOND)
        squares[name] = square = state.squares[name] * _SECOND + squared
        decay = rate * _DECAY if len(old.shape) > 1 else 0.0
        change = mean / ((square / second) ** 0.5 + _TINY) * (rate / first)
        weights[name] = old * (1.0 - decay) - change
    return replace(state, step=step, weights=weights, means=means, squares=squares)


class _Split:
    """Which samples are trained on at which step; prompts are held out whole."""

    def __init__(self, cache: SampleCache, settings: TrainSettings) -> None:
        self._cache, self._settings = cache, settings
        held, self._trained, self._lengths = list[int](), list[int](), list[int]()
        for number in range(len(cache)):
            sample = cache.sample(number)
            self._lengths.append(len(sample.tokens))
            if len(sample.tokens) < sample.first + settings.depth + 2:
                continue
            of_prompt = crc32(sample.tokens[: sample.first].tobytes())
            (self._trained if of_prompt % _VALIDATED else held).append(number)
        if not self._trained:
            raise UsageError("there is nothing to train on", "the answers are too few or too short")
        self._held = (held or self._trained)[:_MOST_VALIDATED]

    @property
    def validation(self) -> Iterator[list[Sample]]:
        """Batches of held-out samples; of those that were drawn greedily, if there are any."""
        samples = self.samples(self._held)
        greedy = [sample for sample in samples if not sample.temperature] or samples
        greedy.sort(key=lambda sample: len(sample.tokens))
        for start in range(0, len(greedy), 8):
            yield greedy[start : start + 8]

    def batches(self) -> Iterator[list[int]]:
        """Numbers of the samples of each step."""
        return (batch for epoch in count() for batch in self._epoch(epoch))

    def samples(self, numbers: Iterable[int]) -> list[Sample]:
        return [self._cache.sample(number) for number in numbers]

    def _epoch(self, epoch: int) -> list[list[int]]:
        """Samples of like length together, in an order of the epoch's own."""
        random = np.random.default_rng([self._settings.seed, 1, epoch])
        order: list[int] = random.permutation(self._trained).tolist()
        batches: list[list[int]] = []
        for start in range(0, len(order), 256):
            batch: list[int] = []
            for number in sorted(order[start : start + 256], key=self._lengths.__getitem__):
                if batch and (len(batch) + 1) * self._lengths[number] > self._settings.batch_tokens:
                    batches.append(batch)
                    batch = []
                batch.append(number)
            batches.append(batch)
        return [batches[at] for at in random.permutation(len(batches))]


def accepted(net: Net, weights: Weights, batches: Iterable[Sequence[Sample]]) -> float:
    """Tokens accepted of a draft, in the mean: rolled out from every place, not fed the truth."""
    found = [net.accepted(weights, net.prepared(samples, None)) for samples in batches]
    return sum(tokens for tokens, _ in found) / max(sum(drafts for _, drafts in found), 1)


def _checked(net: Net, folder: Path, held: Iterator[Sequence[Sample]], state: _State) -> _State:
    """Keep the weights, if held-out answers have more of what they draft."""
    found = accepted(net, state.weights, held)
    if state.accepted is not None and found <= state.accepted:
        return state
    write(folder / BEST, packed({}, _on_host(net.arrays, state.weights)))
    return replace(state, accepted=found)


_LAST, BEST = "checkpoint.npz", "best.npz"
_PARTS = "weights", "means", "squares"


def weights_of(folder: Path) -> dict[str, NDArray[np.float32]]:
    """What training has kept. Raises ModelError: nothing."""
    return read(folder / BEST)[1]


def _on_host(arrays: Arrays, weights: Weights) -> dict[str, NDArray[Any]]:
    return {name: arrays.numpy(values) for name, values in weights.items()}


def _save(arrays: Arrays, folder: Path, state: _State) -> None:
    values = {
        f"{part}/{name}": array
        for part in _PARTS
        for name, array in _on_host(arrays, getattr(state, part)).items()
    }
    write(folder / _LAST, packed({"step": state.step, "accepted": state.accepted}, values))


def _resumed(net: Net, folder: Path) -> _State:
    array = net.arrays.array
    if not (folder / _LAST).exists():
        first = {name: array(values) for name, values in net.first_weights().items()}
        nothing = {name: values * 0.0 for name, values in first.items()}
        return _State(0, first, nothing, nothing)
    told, stored = read(folder / _LAST)
    parts = {part: dict[str, Array]() for part in _PARTS}
    for name, values in stored.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = array(values)
    return _State(told["step"], accepted=told["accepted"], **parts)
