"""What all that is trained does alike: batches, the loss, and drafts that are rolled out.

Place i of a text has the target's states of token i and token i + 1, which was drawn from them; the
k-th drafted token is i + 1 + k. Shapes: B texts, T places, width d, C tokens that are scored.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays, Weights
from training.layer import Layers
from training.samples import Sample, SampleCache
from training.settings import TrainSettings
from training.source import Source
from training.teaching import Taught, Vocabulary, drafted_tokens, missed, spreads, taught

_OTHERS = 2048
"""Tokens scored beside those that are likely anywhere in a batch, so that they stay unlikely."""
_SCORED = 12_000
"""With these, of a batch."""
_FOR_SPREADS = 64


class Batch(NamedTuple):
    """Answers, and what should follow.

    states: (B, T, S * d), scaled. embedded: all tokens and some more, (B, 1 + T + depth, d).
    output: rows of the scored tokens, (C, d). taught: by position in the draft. numbers: of the
    tokens after the next one of each place, (B, T + depth), -1 for what is not scored. places:
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

    fixed: weights on the device that do not learn. vocabulary: what is drafted, None for all.
    spread: of each of a sample's states that are read, (S,). embedding_scale: what embeddings are
    divided by.
    """

    fixed: Weights = MappingProxyType({})
    vocabulary: Vocabulary | None = None
    spread: NDArray[np.float32] = np.empty(0, np.float32)
    read = slice(0)
    embedding_scale = 1.0

    def __init__(self, arrays: Arrays, settings: TrainSettings, source: Source) -> None:
        self.arrays, self.settings, self.source = arrays, settings, source
        self.width = source.shape.width

    @abstractmethod
    def first_weights(self) -> dict[str, NDArray[np.float32]]:
        """What is trained, as it begins, the same each time."""

    @abstractmethod
    def states(self, weights: Weights, batch: Batch) -> Iterator[tuple[Array, str]]:
        """States that tell the tokens, (B, T, d), and the norm that the output reads them by.

        By position in the draft, all tokens before which are the true ones.
        """

    def prepared(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Batch:
        """random: draws the noise of a training batch, None for no noise."""
        depth, spread = self.settings.depth, self.spread
        length = max(len(sample.tokens) for sample in samples) - 1
        states = np.zeros((len(samples), length, len(spread), self.width), np.float32)
        tokens = np.zeros((len(samples), 1 + length + depth), np.int64)
        numbers = np.full((len(samples), length + depth), -1, np.int32)
        places = np.zeros((len(samples), length), bool)
        for row, sample in enumerate(samples):
            tokens[row, : len(sample.tokens)] = sample.tokens
            states[row, : len(sample.tokens) - 1] = sample.states[:-1, self.read]
            places[row, sample.first - 1 : max(len(sample.tokens) - 1 - depth, 0)] = True
        states /= spread[:, np.newaxis]
        if random is not None and len(spread):
            noise = random.standard_normal(states.shape, np.float32)
            states += noise * np.float32(self.settings.noise)
        known, output = self._scored(samples, random)
        for row, sample in enumerate(samples):
            numbers[row, : len(sample.tokens) - 2] = known.numbers[sample.tokens[2:]]
        embedded = self.source.embeddings[tokens].astype(np.float32)
        return Batch(
            self.arrays.array(states.reshape(len(samples), length, len(spread) * self.width)),
            self.arrays.array(embedded / np.float32(self.embedding_scale)),
            output,
            tuple(
                taught(self.arrays, samples, known, length, 1 + position)
                for position in range(depth)
            ),
            numbers,
            places,
        )

    def _scored(
        self, samples: Sequence[Sample], random: np.random.Generator | None
    ) -> tuple[Vocabulary, Array]:
        if self.vocabulary:
            return self.vocabulary, self._output
        n_vocab = self.source.n_vocab
        drawn = (random or np.random.default_rng(0)).integers(0, n_vocab, _OTHERS)
        likely = [sample.likely[sample.first - 1 :].ravel() for sample in samples]
        known = Vocabulary.of(np.unique(np.concatenate([drawn, *likely])), n_vocab)
        return known, self._rows_of(known)

    @cached_property
    def _output(self) -> Array:
        assert self.vocabulary
        return self._rows_of(self.vocabulary)

    def _rows_of(self, known: Vocabulary) -> Array:
        return self.arrays.array(self.source.output[known.drafted].astype(np.float32))

    def layers(self, weights: Weights) -> Layers:
        return Layers(self.arrays, self.source.shape, {**self.fixed, **weights})

    def _told(self, weights: Weights, states: Array, norm: str, batch: Batch) -> Array:
        """Logits of the scored tokens; by an output of low rank, if one is trained."""
        product, normed = self.arrays.product, self.layers(weights).norm(states, norm)
        if "lm_head.down" in weights:
            return product(product(normed, weights["lm_head.down"]), weights["lm_head.up"])
        return product(normed, batch.output)

    def loss(self, weights: Weights, prepared: Batch, progress: float) -> Array:
        """A number; progress: share of the steps that are done."""
        settings, total = self.settings, 0.0
        acceptance = settings.acceptance if progress >= 0.5 else 0.0
        told = self.states(weights, prepared)
        for weight, to in zip(settings.weights, prepared.taught, strict=False):
            states, norm = next(told)
            rows = states.reshape(-1, self.width)[to.rows]
            logits = self._told(weights, rows, norm, prepared)
            total = total + missed(self.arrays, logits, to, acceptance) * weight
        return total

    def logits(self, weights: Weights, prepared: Batch) -> Iterator[Array]:
        """By position, at all places of true texts: (B, T, C)."""
        for states, norm in islice(self.states(weights, prepared), self.settings.depth):
            yield self._told(weights, states, norm, prepared)

    def accepted(self, weights: Weights, prepared: Batch) -> tuple[float, int]:
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
        return float(total), int(prepared.places.sum())

    @property
    def weight_bytes(self) -> int:
        """Of what is trained."""
        return sum(one.nbytes for one in self.first_weights().values())

    def peak_bytes(self, layers: int = 0) -> int:
        """About what training takes: weights and moments, the target's rows, what a step remembers.

        A place of a step remembers its logits three times, and some 60 states: measured at 135M.
        layers: run for each place, by default one for each drafted token.
        """
        settings, source = self.settings, self.source
        scored = len(self.vocabulary.drafted) if self.vocabulary else _SCORED
        states = (layers or settings.depth) * (60 * self.width + 3 * source.shape.feed_forward)
        place = 3 * scored * len(settings.weights) + states
        kept = sum(prod(one.shape) for one in self.fixed.values()) + scored * self.width
        rows = source.embeddings.nbytes + source.output.nbytes
        return 6 * self.weight_bytes + rows + 4 * (2 * kept + settings.batch_tokens * place)


class Head(Net):
    """A net over a cache's states, which drafts what is common in its answers."""

    def __init__(
        self, arrays: Arrays, settings: TrainSettings, source: Source, cache: SampleCache
    ) -> None:
        super().__init__(arrays, settings, source)
        samples = (cache.sample(number) for number in range(len(cache)))
        self.drafted = drafted_tokens(samples, settings.vocabulary, source.n_vocab)
        self.vocabulary = Vocabulary.of(self.drafted, source.n_vocab)
        first = [cache.sample(number) for number in range(min(len(cache), _FOR_SPREADS))]
        self.spread = spreads(first)[self.read]
        self.taps = cache.facts.taps

    @abstractmethod
    def for_file(self, weights: Weights) -> dict[str, NDArray[np.float32]]:
        """Weights that take states and embeddings as they are."""

    def first_output(self) -> dict[str, NDArray[np.float32]]:
        """An output of the settings' rank, the best approximation of the target's rows.

        SlimSpec, arXiv 2605.10453.
        """
        rank = self.settings.rank
        if not rank:
            return {}
        rows = self.source.output[self.drafted].astype(np.float32)
        directions = np.linalg.eigh(rows.T @ rows)[1][:, : -rank - 1 : -1]
        return {
            "lm_head.down": np.ascontiguousarray(directions.T),
            "lm_head.up": rows @ directions,
        }
