"""EAGLE-3 (Li et al. 2025, arXiv 2503.01840): one layer over three taps, trained on its own drafts.

Place i of a text holds token i + 1 and the target's states of token i, of which fc makes one; the
head says token i + 2. Drafting on, what fc made gives way to the head's own state. Shapes: B
texts, T places, width d.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays, Weights
from training.heads.layer import Earlier, Layer, norm
from training.samples import Sample
from training.settings import TrainSettings
from training.source import Source, layer_shapes
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

FC, NORM, OF_STATE = "fc", "norm", "midlayer.hidden_norm"
_UNUSED = 0.01
"""Spread of the weights of embeddings, which the target's last layer does not read."""


class Batch(NamedTuple):
    """Answers, and what should follow.

    states: (B, T, taps * d), scaled. embedded: (B, T + depth, d), of the next tokens. taught: by
    position. next_states: the scaled last states after (EAGLE-1), else None.
    """

    states: Array
    embedded: Array
    taught: tuple[Taught, ...]
    texts: Texts
    next_states: Array | None


class Eagle3:
    """The head over a cache whose states are the inputs of taps, and the normed one.

    spread: of each of these states.
    """

    def __init__(
        self,
        arrays: Arrays,
        source: Source,
        settings: TrainSettings,
        vocabulary: Vocabulary,
        spread: NDArray[np.float32],
        taps: tuple[int, ...],
    ) -> None:
        self.source, self.settings, self.vocabulary, self.taps = source, settings, vocabulary, taps
        self._arrays = arrays
        self._is_first = settings.method == "eagle1"
        self._read = slice(-1, None) if self._is_first else slice(None, -1)
        self._spread = spread[self._read]
        self._output = Output(arrays, source.output[vocabulary.drafted], settings.rank)
        self._layer = Layer(arrays, source.shape)

    def first_weights(self) -> dict[str, NDArray[np.float32]]:
        """The target's last layer, which reads the last tap; embeddings count for little yet."""
        random = np.random.default_rng(self.settings.seed)
        width, taps = self.source.width, len(self._spread)
        weights: dict[str, NDArray[np.float32]] = {}
        for name, shape in layer_shapes(self.source.shape, 2).items():
            values = random.normal(0.0, _UNUSED, shape).astype(np.float32)
            if len(shape) == 1:
                values = np.ones(shape, np.float32)
            if (last := self.source.last.get(name)) is not None and name != "input_layernorm":
                values[..., -last.shape[-1] :] = last
            weights[f"midlayer.{name}"] = values
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            weights[f"midlayer.{name}"] /= self._spread[-1]
        weights[OF_STATE] = self.source.last.get("input_layernorm", np.ones(width, np.float32))
        weights[NORM] = self.source.output_norm
        weights[FC] = np.zeros((width, taps * width), np.float32)
        weights[FC][:, -width:] = np.eye(width)
        if self.settings.is_parallel:
            weights["pad.embedding"] = self.source.embeddings.mean(0, dtype=np.float32)
            weights["pad.state"] = np.zeros(width, np.float32)
        return weights | self._output.first_weights()

    def for_file(self, weights: Weights) -> dict[str, NDArray[np.float32]]:
        """Weights that take states as they are."""
        scales = np.repeat(self._spread, self.source.width)
        return {**weights, FC: weights[FC] / scales}

    def prepared(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Batch:
        depth, width = self.settings.depth, self.source.width
        length = max(len(sample.tokens) for sample in samples) - 1
        states = np.zeros((len(samples), length, len(self._spread), width), np.float32)
        after = np.zeros((len(samples), length, width), np.float32)
        tokens = np.zeros((len(samples), length + depth), np.int64)
        for row, sample in enumerate(samples):
            count = len(sample.tokens) - 1
            read = sample.states[:, self._read]
            states[row, :count], after[row, :count] = read[:-1], read[1:, -1]
            tokens[row, :count] = sample.tokens[1:]
        states /= self._spread[:, np.newaxis]
        if random is not None:
            noise = random.standard_normal(states.shape, np.float32)
            states += noise * np.float32(self.settings.noise)
        array = self._arrays.array
        return Batch(
            array(states.reshape(len(samples), length, -1)),
            array(self.source.embeddings[tokens].astype(np.float32)),
            tuple(
                taught(self._arrays, samples, self.vocabulary, length, 1 + position)
                for position in range(depth)
            ),
            texts(samples, self.vocabulary, length, depth),
            array(after / self._spread[-1]) if self._is_first else None,
        )

    def loss(self, weights: Weights, prepared: Batch, progress: float) -> Array:
        settings, width = self.settings, self.source.width
        acceptance = settings.acceptance if progress >= 0.5 else 0.0
        total, state = 0.0, prepared.states
        depth = 1 if self._is_first else settings.depth
        losses = zip(prepared.taught, settings.weights, strict=True)
        for (to, weight), state in zip(losses, self._told(weights, prepared, depth), strict=False):
            rows = self._arrays.rows(state.reshape(-1, width), to.rows)
            logits = self._output.logits(weights, self._normed(weights, rows))
            total = total + missed(self._arrays, logits, to, acceptance) * weight
        if prepared.next_states is not None:
            off = state - prepared.next_states
            total = total + ((off * off + 1.0) ** 0.5 - 1.0).mean()
        return total

    def _told(self, weights: Weights, prepared: Batch, depth: int) -> Iterator[Array]:
        """States by position, where all drafted tokens are the true ones."""
        state, run = self._arrays.product(prepared.states, weights[FC]), self._layer.begin()
        for position in range(depth):
            embedded = prepared.embedded[:, position : position + state.shape[1]]
            state = self._step(weights, embedded, state, run)
            yield state

    def _step(self, weights: Weights, embedded: Array, state: Array, run: Earlier) -> Array:
        """States of the next position; run: of those before, which it is added to."""
        if self.settings.is_parallel and run:
            embedded = embedded * 0.0 + weights["pad.embedding"]
            state = state * 0.0 + weights["pad.state"]
        epsilon = self.source.shape.epsilon
        inputs = [
            norm(embedded, weights["midlayer.input_layernorm"], epsilon),
            norm(state, weights[OF_STATE], epsilon),
        ]
        return self._layer.run(
            weights, "midlayer", self._arrays.concatenated(inputs, -1), state, run
        )

    def _normed(self, weights: Weights, states: Array) -> Array:
        return norm(states, weights[NORM], self.source.shape.epsilon)

    def logits(self, weights: Weights, prepared: Batch) -> list[NDArray[np.float32]]:
        """By position, at all places of true texts: (B, T, drafted)."""
        told = self._told(weights, prepared, self.settings.depth)
        states = [self._normed(weights, state) for state in told]
        return [self._arrays.numpy(self._output.logits(weights, state)) for state in states]

    def accepted(self, weights: Weights, prepared: Batch) -> tuple[float, int]:
        state, run = self._arrays.product(prepared.states, weights[FC]), self._layer.begin()
        embedded = prepared.embedded[:, : prepared.states.shape[1]]

        def guess(before: Numbers | None) -> Numbers:
            nonlocal state, embedded
            if before is not None:
                tokens = self.vocabulary.drafted[before]
                embedded = self._arrays.array(self.source.embeddings[tokens].astype(np.float32))
            state = self._step(weights, embedded, state, run)
            logits = self._output.logits(weights, self._normed(weights, state))
            return self._arrays.numpy(self._arrays.likeliest(logits))

        return rolled_out(prepared.texts, self.settings.depth, guess)
