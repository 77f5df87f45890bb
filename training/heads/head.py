"""What all heads that are trained do alike: batches, the loss, and drafts that are rolled out.

Place i of a text has the target's states of token i and token i + 1, which was drawn from them; the
k-th drafted token is i + 1 + k. Shapes: B texts, T places, width d.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays, Weights
from training.samples import Sample
from training.settings import TrainSettings
from training.source import Source
from training.teaching import (
    Numbers,
    Output,
    Taught,
    Texts,
    Vocabulary,
    missed,
    rolled_out,
    taught,
    texts,
)


class Given(NamedTuple):
    """What a head is made of.

    taps: layers whose inputs are the cache's states, but for the last one, the target's normed
    state. spread: of each of these.
    """

    arrays: Arrays
    source: Source
    settings: TrainSettings
    vocabulary: Vocabulary
    spread: NDArray[np.float32]
    taps: tuple[int, ...]


class Batch(NamedTuple):
    """Answers, and what should follow.

    states: (B, T, states * d), scaled. embedded: (B, T + depth, d), of the next tokens. taught: by
    position in the draft.
    """

    states: Array
    embedded: Array
    taught: tuple[Taught, ...]
    texts: Texts


class Head(ABC):
    """A head over a cache's states; spread: of those that it reads."""

    embedding_scale = 1.0
    """What embeddings are divided by."""

    def __init__(self, given: Given, read: slice) -> None:
        """read: states of the cache's that it reads."""
        self.arrays, self.source, self.settings = given.arrays, given.source, given.settings
        self.vocabulary, self.spread, self._read = given.vocabulary, given.spread[read], read
        rows = self.source.output[self.vocabulary.drafted]
        self.output = Output(self.arrays, rows, self.settings.rank)

    @abstractmethod
    def first_weights(self) -> dict[str, NDArray[np.float32]]: ...

    @abstractmethod
    def for_file(self, weights: Weights) -> dict[str, NDArray[np.float32]]:
        """Weights that take states and embeddings as they are."""

    @abstractmethod
    def states(self, weights: Weights, states: Array, drafted: Sequence[Array]) -> Iterator[Array]:
        """States that tell the tokens, by position, without end.

        drafted: embeddings of the tokens before, by position; may grow by each token told.
        """

    @abstractmethod
    def normed(self, weights: Weights, states: Array, position: int) -> Array:
        """What the output reads of the states of a position."""

    def prepared(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Batch:
        depth, width = self.settings.depth, self.source.width
        length = max(len(sample.tokens) for sample in samples) - 1
        states = np.zeros((len(samples), length, len(self.spread), width), np.float32)
        tokens = np.zeros((len(samples), length + depth), np.int64)
        for row, sample in enumerate(samples):
            count = len(sample.tokens) - 1
            states[row, :count] = sample.states[:-1, self._read]
            tokens[row, :count] = sample.tokens[1:]
        states /= self.spread[:, np.newaxis]
        if random is not None:
            noise = random.standard_normal(states.shape, np.float32)
            states += noise * np.float32(self.settings.noise)
        return Batch(
            self.arrays.array(states.reshape(len(samples), length, -1)),
            self._embedded(tokens),
            tuple(
                taught(self.arrays, samples, self.vocabulary, length, 1 + position)
                for position in range(depth)
            ),
            texts(samples, self.vocabulary, length, depth),
        )

    def _embedded(self, tokens: NDArray[np.integer]) -> Array:
        rows = self.source.embeddings[tokens].astype(np.float32)
        return self.arrays.array(rows / np.float32(self.embedding_scale))

    def _told(self, weights: Weights, prepared: Batch) -> Iterator[Array]:
        """States by position, where all drafted tokens are the true ones."""
        length = prepared.states.shape[1]
        shifts = range(self.settings.depth)
        drafted = [prepared.embedded[:, shift : shift + length] for shift in shifts]
        return self.states(weights, prepared.states, drafted)

    def loss(self, weights: Weights, prepared: Batch, progress: float) -> Array:
        settings, total = self.settings, 0.0
        acceptance = settings.acceptance if progress >= 0.5 else 0.0
        told = self._told(weights, prepared)
        for position, weight in enumerate(settings.weights):
            state, to = next(told), prepared.taught[position]
            rows = self.arrays.rows(state.reshape(-1, self.source.width), to.rows)
            logits = self.output.logits(weights, self.normed(weights, rows, position))
            total = total + missed(self.arrays, logits, to, acceptance) * weight
        return total

    def logits(self, weights: Weights, prepared: Batch) -> list[NDArray[np.float32]]:
        """By position, at all places of true texts: (B, T, drafted)."""
        told = zip(range(self.settings.depth), self._told(weights, prepared), strict=False)
        normed = (self.normed(weights, state, position) for position, state in told)
        return [self.arrays.numpy(self.output.logits(weights, state)) for state in normed]

    def accepted(self, weights: Weights, prepared: Batch) -> tuple[float, int]:
        drafted = [prepared.embedded[:, : prepared.states.shape[1]]]
        told = enumerate(self.states(weights, prepared.states, drafted))

        def guess(before: Numbers | None) -> Numbers:
            if before is not None:
                drafted.append(self._embedded(self.vocabulary.drafted[before]))
            position, state = next(told)
            logits = self.output.logits(weights, self.normed(weights, state, position))
            return self.arrays.numpy(self.arrays.likeliest(logits))

        return rolled_out(prepared.texts, self.settings.depth, guess)
