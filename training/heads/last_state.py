"""Heads that read the target's last normed state alone, which every architecture has.

Medusa (Cai et al. 2024, arXiv 2401.10774) guesses each position from it; Hydra (Ankner et al.
2024, arXiv 2402.05109) from it and the tokens drafted since; the recurrent one (as ReDrafter,
Zhang et al. 2024, arXiv 2403.09919) from it, the last token and what it made of those before. Place
i of a text has the state of token i, of which token i + 1 was drawn; the k-th drafted token is
i + 1 + k.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays, Weights
from training.heads.layer import norm
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

_READ_LITTLE = 0.02
"""Spread of the first weights of embeddings."""
_MLP = {
    "norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


class Batch(NamedTuple):
    """states: (B, T, d), embedded: (B, T + depth, d), of the next tokens; both scaled."""

    states: Array
    embedded: Array
    taught: tuple[Taught, ...]
    texts: Texts


class LastState:
    def __init__(
        self,
        arrays: Arrays,
        source: Source,
        settings: TrainSettings,
        vocabulary: Vocabulary,
        spread: NDArray[np.float32],
    ) -> None:
        self.source, self.settings, self.vocabulary = source, settings, vocabulary
        self._arrays, self._spread = arrays, float(spread[-1])
        sampled = source.embeddings[:: max(source.n_vocab // 1024, 1)].astype(np.float32)
        self._of_embeddings = float(np.sqrt((sampled**2).mean()))
        self._output = Output(arrays, source.output[vocabulary.drafted], settings.rank)

    @property
    def n_heads(self) -> int:
        return 1 if self.settings.method == "recurrent" else self.settings.depth

    def _inputs(self, head: int) -> int:
        """Vectors that a head reads side by side."""
        return {"medusa": 1, "recurrent": 3}.get(self.settings.method, head + 2)

    def first_weights(self) -> dict[str, NDArray[np.float32]]:
        """The state itself, and the feed-forward part of the target's last layer."""
        random = np.random.default_rng(self.settings.seed)
        shape, width = self.source.shape, self.source.width
        weights: dict[str, NDArray[np.float32]] = {}
        sizes = {
            "norm": (width,),
            "gate": (shape.feed_forward, width),
            "up": (shape.feed_forward, width),
            "down": (width, shape.feed_forward),
        }
        for head in range(self.n_heads):
            read = random.normal(0.0, _READ_LITTLE, (width, self._inputs(head) * width))
            read[:, :width] = np.eye(width)
            weights[f"heads.{head}.input"] = read.astype(np.float32)
            for name, size in sizes.items():
                values = random.normal(0.0, _READ_LITTLE, size).astype(np.float32)
                weights[f"heads.{head}.{name}"] = self.source.last.get(
                    _MLP[name], np.ones(size, np.float32) if name == "norm" else values
                ) / (self._spread if name == "down" else 1.0)
            weights[f"heads.{head}.output_norm"] = np.full(width, self._spread, np.float32)
        return weights | self._output.first_weights()

    def for_file(self, weights: Weights) -> dict[str, NDArray[np.float32]]:
        """Weights that take states and embeddings as they are."""
        width = self.source.width
        folded = dict(weights)
        for head in range(self.n_heads):
            name = f"heads.{head}.input"
            scales = np.full(self._inputs(head), self._of_embeddings, np.float32)
            scales[0] = self._spread
            if self.settings.method == "recurrent":
                scales[1] = 1.0
            folded[name] = weights[name] / np.repeat(scales, width)
        return folded

    def prepared(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Batch:
        depth, width = self.settings.depth, self.source.width
        length = max(len(sample.tokens) for sample in samples) - 1
        states = np.zeros((len(samples), length, width), np.float32)
        tokens = np.zeros((len(samples), length + depth), np.int64)
        for row, sample in enumerate(samples):
            count = len(sample.tokens) - 1
            states[row, :count] = sample.states[:-1, -1]
            tokens[row, :count] = sample.tokens[1:]
        states /= self._spread
        if random is not None:
            noise = random.standard_normal(states.shape, np.float32)
            states += noise * np.float32(self.settings.noise)
        return Batch(
            self._arrays.array(states),
            self._embedded(tokens),
            tuple(
                taught(self._arrays, samples, self.vocabulary, length, 1 + position)
                for position in range(depth)
            ),
            texts(samples, self.vocabulary, length, depth),
        )

    def _embedded(self, tokens: NDArray[np.integer]) -> Array:
        rows = self.source.embeddings[tokens].astype(np.float32)
        return self._arrays.array(rows / np.float32(self._of_embeddings))

    def _states(self, weights: Weights, state: Array, drafted: Sequence[Array]) -> Iterator[Array]:
        """Normed states that tell the tokens; drafted: may grow meanwhile, by each token told."""
        epsilon, own, position = self.source.shape.epsilon, state * 0.0, 0
        while position < self.settings.depth:
            head = min(position, self.n_heads - 1)
            read = [state, own, drafted[position]]
            if self.settings.method != "recurrent":
                read = [state, *drafted[: position + 1]][: self._inputs(head)]

            def part(name: str, head: int = head) -> Array:
                return weights[f"heads.{head}.{name}"]

            product = self._arrays.product
            own = product(self._arrays.concatenated(read, -1), part("input"))
            between = norm(own, part("norm"), epsilon)
            gate = self._arrays.silu(product(between, part("gate")))
            own = own + product(gate * product(between, part("up")), part("down"))
            yield norm(own, part("output_norm"), epsilon)
            position += 1

    def loss(self, weights: Weights, prepared: Batch, progress: float) -> Array:
        settings = self.settings
        acceptance = settings.acceptance if progress >= 0.5 else 0.0
        told, total = self._told(weights, prepared), 0.0
        for state, to, weight in zip(told, prepared.taught, settings.weights, strict=True):
            rows = self._arrays.rows(state.reshape(-1, state.shape[-1]), to.rows)
            logits = self._output.logits(weights, rows)
            total = total + missed(self._arrays, logits, to, acceptance) * weight
        return total

    def logits(self, weights: Weights, prepared: Batch) -> list[NDArray[np.float32]]:
        """By position, at all places of true texts: (B, T, drafted)."""
        told = self._told(weights, prepared)
        return [self._arrays.numpy(self._output.logits(weights, state)) for state in told]

    def _told(self, weights: Weights, prepared: Batch) -> Iterator[Array]:
        length = prepared.states.shape[1]
        shifts = range(self.settings.depth)
        drafted = [prepared.embedded[:, at : at + length] for at in shifts]
        return self._states(weights, prepared.states, drafted)

    def accepted(self, weights: Weights, prepared: Batch) -> tuple[float, int]:
        drafted = [prepared.embedded[:, : prepared.states.shape[1]]]
        told = self._states(weights, prepared.states, drafted)

        def guess(before: Numbers | None) -> Numbers:
            if before is not None:
                drafted.append(self._embedded(self.vocabulary.drafted[before]))
            logits = self._output.logits(weights, next(told))
            return self._arrays.numpy(self._arrays.likeliest(logits))

        return rolled_out(prepared.texts, self.settings.depth, guess)
