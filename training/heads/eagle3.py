"""EAGLE-3 (Li et al. 2025, arXiv 2503.01840): one layer over three taps, trained on its own drafts.

fc makes one state of the target's three; drafting on, the head's own state takes its place.
EAGLE-1 (Li et al. 2024, arXiv 2401.15077) reads the last state alone, and is trained for one token.
Weights are named as in llama.cpp's files.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays, Weights
from training.layer import Positions
from training.net import Batch, Head
from training.samples import SampleCache
from training.settings import TrainSettings
from training.source import Source

FC, NORM, OF_STATE, BLOCK = "fc.weight", "output_norm.weight", "blk.0.attn_norm_2.weight", "blk.0."
_UNUSED = 0.01
"""Spread of the weights of embeddings, which the target's last layer does not read: with 0.05 a
head of 120 steps got 0.23 tokens, with this 0.29."""

_UNSURE = 0.4
"""Of the last norm: what the target's layer makes of another token is not to be believed at first.
0.34 tokens after 120 steps, 0.30 without."""


class Eagle3(Head):
    def __init__(
        self, arrays: Arrays, settings: TrainSettings, source: Source, cache: SampleCache
    ) -> None:
        self.read = slice(-1, None) if settings.method == "eagle1" else slice(None, -1)
        super().__init__(arrays, settings, source, cache)

    def first_weights(self) -> dict[str, NDArray[np.float32]]:
        """The target's last layer, which reads the last tap; embeddings count for little yet."""
        random = np.random.default_rng(self.settings.seed)
        width, last = self.width, self.source.last
        weights: dict[str, NDArray[np.float32]] = {}
        for name, shape in self.source.shape.weights(2).items():
            values = random.normal(0.0, _UNUSED, shape).astype(np.float32)
            if len(shape) == 1:
                values = np.ones(shape, np.float32)
            if name in last and name != "attn_norm":
                values[..., -last[name].shape[-1] :] = last[name]
            weights[f"{BLOCK}{name}.weight"] = values
        for name in ("attn_output", "ffn_down"):
            weights[f"{BLOCK}{name}.weight"] /= self.spread[-1]
        weights[OF_STATE] = last.get("attn_norm", np.ones(width, np.float32))
        weights[NORM] = self.source.output_norm * np.float32(_UNSURE)
        weights[FC] = np.zeros((width, len(self.spread) * width), np.float32)
        weights[FC][:, -width:] = np.eye(width)
        if self.settings.is_parallel:
            weights["pad.embedding"] = self.source.embeddings.mean(0, dtype=np.float32)
            weights["pad.state"] = np.zeros(width, np.float32)
        return weights | self.first_output()

    def for_file(self, weights: Weights) -> dict[str, NDArray[np.float32]]:
        return {**weights, FC: weights[FC] / np.repeat(self.spread, self.width)}

    def states(self, weights: Weights, batch: Batch) -> Iterator[tuple[Array, str]]:
        layer, run = self.layers(weights), Positions()
        state, length = self.arrays.product(batch.states, weights[FC]), batch.states.shape[1]
        while True:
            embedded = batch.embedded[:, 1 + len(run) : 1 + len(run) + length]
            if self.settings.is_parallel and run:
                embedded = embedded * 0.0 + weights["pad.embedding"]
                state = state * 0.0 + weights["pad.state"]
            inputs = [
                layer.norm(embedded, f"{BLOCK}attn_norm"),
                layer.norm(state, f"{BLOCK}attn_norm_2"),
            ]
            state = layer.run(BLOCK, self.arrays.ops.concatenate(inputs, -1), state, run)
            yield state, "output_norm"
