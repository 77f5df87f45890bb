"""EAGLE-3 (Li et al. 2025, arXiv 2503.01840): one layer over three taps, trained on its own drafts.

fc makes one state of the target's three; drafting on, the head's own state takes its place.
EAGLE-1 (Li et al. 2024, arXiv 2401.15077) reads the last state alone, and is trained for one token.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Weights
from training.heads.head import Given, Head
from training.heads.layer import Layer, norm
from training.source import layer_shapes

FC, NORM, OF_STATE = "fc", "norm", "midlayer.hidden_norm"
_UNUSED = 0.01
"""Spread of the weights of embeddings, which the target's last layer does not read: with 0.05 a
head of 120 steps got 0.23 tokens, with this 0.29."""

_UNSURE = 0.4
"""Of the last norm: what the target's layer makes of another token is not to be believed at first.
0.34 tokens after 120 steps, 0.30 without."""


class Eagle3(Head):
    def __init__(self, given: Given) -> None:
        is_first = given.settings.method == "eagle1"
        super().__init__(given, slice(-1, None) if is_first else slice(None, -1))
        self.taps = given.taps
        self._layer = Layer(self.arrays, self.source.shape)

    def first_weights(self) -> dict[str, NDArray[np.float32]]:
        """The target's last layer, which reads the last tap; embeddings count for little yet."""
        random = np.random.default_rng(self.settings.seed)
        width, last = self.source.width, self.source.last
        weights: dict[str, NDArray[np.float32]] = {}
        for name, shape in layer_shapes(self.source.shape, 2).items():
            values = random.normal(0.0, _UNUSED, shape).astype(np.float32)
            if len(shape) == 1:
                values = np.ones(shape, np.float32)
            if name in last and name != "input_layernorm":
                values[..., -last[name].shape[-1] :] = last[name]
            weights[f"midlayer.{name}"] = values
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            weights[f"midlayer.{name}"] /= self.spread[-1]
        weights[OF_STATE] = last.get("input_layernorm", np.ones(width, np.float32))
        weights[NORM] = self.source.output_norm * np.float32(_UNSURE)
        weights[FC] = np.zeros((width, len(self.spread) * width), np.float32)
        weights[FC][:, -width:] = np.eye(width)
        if self.settings.is_parallel:
            weights["pad.embedding"] = self.source.embeddings.mean(0, dtype=np.float32)
            weights["pad.state"] = np.zeros(width, np.float32)
        return weights | self.output.first_weights()

    def for_file(self, weights: Weights) -> dict[str, NDArray[np.float32]]:
        return {**weights, FC: weights[FC] / np.repeat(self.spread, self.source.width)}

    def states(self, weights: Weights, states: Array, drafted: Sequence[Array]) -> Iterator[Array]:
        epsilon, run = self.source.shape.epsilon, self._layer.begin()
        state = self.arrays.product(states, weights[FC])
        while True:
            embedded = drafted[len(run)]
            if self.settings.is_parallel and run:
                embedded = embedded * 0.0 + weights["pad.embedding"]
                state = state * 0.0 + weights["pad.state"]
            inputs = [
                norm(embedded, weights["midlayer.input_layernorm"], epsilon),
                norm(state, weights[OF_STATE], epsilon),
            ]
            read = self.arrays.concatenated(inputs, -1)
            state = self._layer.run(weights, "midlayer", read, state, run)
            yield state

    def normed(self, weights: Weights, states: Array, position: int) -> Array:
        del position
        return norm(states, weights[NORM], self.source.shape.epsilon)
