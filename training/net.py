"""What all that is trained does alike: batches, the loss, and drafts that are rolled out.

Place i of a text has the target's states of token i and token i + 1, which was drawn from them; the
k-th drafted token is i + 1 + k. Shapes: B texts, T places, width d, C tokens that are scored.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backends.base import DiskFullError
from backends.base.safe_files import make_private_folder
from training.arrays import Array, Arrays, Weights
from training.files import Stored, write_folder
from training.layer import Layers
from training.samples import Sample, SampleCache
from training.settings import TrainSettings
from training.source import Source
from training.teaching import Taught, Vocabulary, missed, padded, taught

_OTHERS = 2048
"""Tokens scored beside those that are likely anywhere in a batch, so that they stay unlikely."""
_SCORED = 12_000
"""With these, of a batch."""
_FOR_SPREADS = 64


class Batch(NamedTuple):
    """Answers, and what should follow.

    states: (B, T, S * d), scaled. embedded: all tokens and some more, (B, 1 + T + depth, d).
    output: rows of the scored tokens, (C, d). taught: by position in the draft. numbers: of the
    tokens after the next one of each place, (B, T + depth - 1), -1 for what is not scored. places:
    that are drafted from, (B, T).
    """

    states: Array
    embedded: Array
    output: Array
    taught: tuple[Taught, ...]
    numbers: NDArray[np.int32]
    places: NDArray[np.bool_]


class Net(ABC):
    """A graph over a model's weights that learns.

    fixed: weights on the device that do not learn. vocabulary, output: what is drafted, and its
    rows; None for all. read, spread: states of a sample that are read, and of each, (S,), its root
    mean square. embedding_scale: what embeddings are divided by. learnt_positions: of a draft, None
    for all.
    """

    learnt_positions: int | None = None
    fixed: Weights = MappingProxyType({})
    vocabulary: Vocabulary | None = None
    output: Array = None
    spread: NDArray[np.float32] = np.empty(0, np.float32)
    read = slice(0)
    embedding_scale = 1.0

    def __init__(self, arrays: Arrays, settings: TrainSettings, source: Source) -> None:
        self.arrays, self.settings, self.source = arrays, settings, source
        self.width = source.shape.width

    @abstractmethod
    def first_weights(self) -> Stored:
        """What is trained, as it begins, the same each time."""

    @abstractmethod
    def states(self, weights: Weights, batch: Batch) -> Iterator[tuple[Array, str]]:
        """States that tell the tokens, (B, T, d), and the norm that the output reads them by.

        By position in the draft, all tokens before which are the true ones.
        """

    @abstractmethod
    def _write(self, learnt: Stored, folder: Path) -> None: ...

    def write(self, learnt: Stored, folder: Path) -> None:
        """Write what drafts, as the engines read it, into a folder of its own.

        Raises DiskFullError.
        """
        try:
            make_private_folder(folder)
            self._write(learnt, folder)
        except OSError as error:
            what = f"the drafter cannot be written to {folder}"
            raise DiskFullError(what, str(error)) from error

    def prepared(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Batch:
        """random: draws the noise of a training batch, None for no noise."""
        array, depth = self.arrays.array, self.settings.depth
        length = max(len(sample.tokens) for sample in samples) - 1
        states = padded([sample.states[:-1, self.read] for sample in samples], length)
        states = states / self.spread[:, np.newaxis]
        if random is not None and states.size:
            noise = random.standard_normal(states.shape, np.float32)
            states += noise * np.float32(self.settings.noise)
        tokens = padded([sample.tokens for sample in samples], 1 + length + depth)
        places = np.zeros((len(samples), length), bool)
        for row, sample in zip(places, samples, strict=True):
            row[sample.first - 1 : max(len(sample.tokens) - 1 - depth, 0)] = True
        known = self.vocabulary or self._likely(samples, random)
        embedded = self.source.embeddings[tokens].astype(np.float32)
        return Batch(
            array(states.reshape(len(samples), length, len(self.spread) * self.width)),
            array(embedded / np.float32(self.embedding_scale)),
            self._rows(known) if self.output is None else self.output,
            tuple(taught(self.arrays, samples, known, self.learnt_positions or depth)),
            known.numbers[tokens[:, 2:]],
            places,
        )

    def _likely(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Vocabulary:
        n_vocab = self.source.n_vocab
        drawn = (random or np.random.default_rng(0)).integers(0, n_vocab, _OTHERS)
        likely = [sample.likely[sample.first - 1 :].ravel() for sample in samples]
        return Vocabulary.of(np.concatenate([drawn, *likely]), n_vocab)

    def _rows(self, known: Vocabulary) -> Array:
        return self.arrays.array(self.source.output[known.drafted].astype(np.float32))

    def layers(self, weights: Weights) -> Layers:
        return Layers(self.arrays, self.source.shape, {**self.fixed, **weights})

    def _told(self, weights: Weights, states: Array, norm: str, batch: Batch) -> Array:
        """Logits of the scored tokens."""
        return self.arrays.product(self.layers(weights).norm(states, norm), batch.output)

    def loss(self, prepared: Batch, progress: float, weights: Weights) -> Array:
        """A number; progress: share of the steps that are done."""
        settings, total = self.settings, 0.0
        acceptance = settings.acceptance if progress >= 0.5 else 0.0
        told = self.states(weights, prepared)
        for position, to in enumerate(prepared.taught):
            states, norm = next(told)
            rows = states.reshape(-1, self.width)[to.rows]
            logits = self._told(weights, rows, norm, prepared)
            total = total + missed(self.arrays, logits, to, acceptance) * settings.decay**position
        return total

    def logits(self, weights: Weights, prepared: Batch) -> Iterator[Array]:
        """By position, at all places of true texts: (B, T, C)."""
        for states, norm in islice(self.states(weights, prepared), self.settings.depth):
            yield self._told(weights, states, norm, prepared)

    def accepted(self, weights: Weights, prepared: Batch) -> tuple[int, int]:
        """Roll drafts out from every place of the answers, on their own tokens and states.

        These are the true tokens for as long as a draft stands.

        Returns the tokens in all that the answers have up to the first other one, and the number
        of drafts.
        """
        stands, total = prepared.places.copy(), 0
        for position, logits in enumerate(self.logits(weights, prepared)):
            said = self.arrays.numpy(logits.argmax(-1))
            stands &= said == prepared.numbers[:, position : position + stands.shape[1]]
            total += int(stands.sum())
        return total, int(prepared.places.sum())

    @property
    def weight_bytes(self) -> int:
        """Of what is trained."""
        return sum(one.nbytes for one in self.first_weights().values())

    def peak_bytes(self) -> int:
        """About what training takes: weights and moments, the target's rows, what a step remembers.

        A place of a step remembers its logits three times, and some 60 states: measured at 135M.
        """
        settings, source = self.settings, self.source
        scored = len(self.vocabulary.drafted) if self.vocabulary else _SCORED
        states = 60 * self.width + 3 * source.shape.feed_forward
        place = settings.depth * (3 * scored + states)
        kept = 2 * sum(prod(one.shape) for one in self.fixed.values()) + scored * self.width
        rows = source.embeddings.nbytes + source.output.nbytes
        return 6 * self.weight_bytes + rows + 4 * (kept + settings.batch_tokens * place)


class Head(Net):
    """A net over a cache's states, which drafts what is common in its answers."""

    def __init__(
        self, arrays: Arrays, settings: TrainSettings, source: Source, cache: SampleCache
    ) -> None:
        super().__init__(arrays, settings, source)
        samples = (cache.sample(number) for number in range(len(cache)))
        self.vocabulary = Vocabulary.commonest(samples, settings.vocabulary, source.n_vocab)
        self.output = self._rows(self.vocabulary)
        first = (cache.sample(number) for number in range(min(len(cache), _FOR_SPREADS)))
        # without a prompt's first token, which is far off
        squares = [(sample.states[1:] ** 2).mean((0, 2)) for sample in first]
        self.spread = np.sqrt(np.mean(squares, axis=0)).astype(np.float32)[self.read]

    def write_folder(self, folder: Path, config: Mapping[str, Any], tensors: Stored) -> None:
        """Facts and tensors as folders of heads have them. d2t: from numbers to ids."""
        assert self.vocabulary
        shape, drafted = self.source.shape, self.vocabulary.drafted
        common = {
            "hidden_size": shape.width,
            "intermediate_size": shape.feed_forward,
            "vocab_size": self.source.n_vocab,
            "draft_vocab_size": len(drafted),
            "rms_norm_eps": shape.epsilon,
        }
        d2t = drafted - np.arange(len(drafted))
        write_folder(folder, common | dict(config), {"d2t": d2t, **tensors})
