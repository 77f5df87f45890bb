"""Heads that read the target's last normed state alone, which every architecture has.

Medusa (Cai et al. 2024, arXiv 2401.10774) guesses each position from it; Hydra (Ankner et al.
2024, arXiv 2402.05109) from it and the tokens drafted since.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from training.arrays import Array, Arrays, Weights
from training.files import Stored
from training.net import Batch, Head
from training.samples import SampleCache
from training.settings import TrainSettings
from training.source import Source

_READ_LITTLE = 0.02
"""Spread of the first weights of embeddings."""
_PARTS = "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"
"""Of a head; they begin as those of the target's last layer."""


class LastState(Head):
    read = slice(-1, None)

    def __init__(
        self, arrays: Arrays, settings: TrainSettings, source: Source, cache: SampleCache
    ) -> None:
        super().__init__(arrays, settings, source, cache)
        sampled = self.source.embeddings[:: max(self.source.n_vocab // 1024, 1)]
        self.embedding_scale = float(np.sqrt((sampled.astype(np.float32) ** 2).mean()))

    def _inputs(self, head: int) -> int:
        """Vectors that a head reads side by side."""
        return 1 if self.settings.method == "medusa" else head + 2

    def first_weights(self) -> Stored:
        """The state itself, and the feed-forward part of the target's last layer."""
        random = np.random.default_rng(self.settings.seed)
        shapes, width = self.source.shape.weights(), self.width
        weights: Stored = {}
        for number in range(self.settings.depth):
            head = f"heads.{number}."
            read = random.normal(0.0, _READ_LITTLE, (width, self._inputs(number) * width))
            read[:, :width] = np.eye(width)
            weights[f"{head}input.weight"] = read.astype(np.float32)
            for name in _PARTS:
                drawn = random.normal(0.0, _READ_LITTLE, shapes[name]).astype(np.float32)
                values = self.source.last.get(name, drawn + 1.0 if name == "ffn_norm" else drawn)
                weights[f"{head}{name}.weight"] = values
            weights[f"{head}ffn_down.weight"] = weights[f"{head}ffn_down.weight"] / self.spread
            weights[f"{head}output_norm.weight"] = np.repeat(self.spread, width)
        return weights

    def states(self, weights: Weights, batch: Batch) -> Iterator[tuple[Array, str]]:
        layer, told = self.layers(weights), list[Array]()
        length = batch.states.shape[1]
        for position in range(self.settings.depth):
            head = f"heads.{position}."
            told.append(batch.embedded[:, 1 + position : 1 + position + length])
            read = [batch.states, *told][: self._inputs(position)]
            state = layer.linear(self.arrays.ops.concatenate(read, -1), f"{head}input")
            state = state + layer.feed_forward(layer.norm(state, f"{head}ffn_norm"), head)
            yield state, f"{head}output_norm"

    def _write(self, learnt: Stored, folder: Path) -> None:
        """Weights that take states and embeddings as they are."""
        tensors: Stored = {"lm_head.weight": self.arrays.numpy(self.output)}
        for name, values in learnt.items():
            tensors[name.replace(".ffn_", ".").removesuffix(".weight")] = values
        for head in range(self.settings.depth):
            scales = np.full(self._inputs(head), self.embedding_scale, np.float32)
            scales[0] = self.spread[0]
            name = f"heads.{head}.input"
            tensors[name] = tensors[name] / np.repeat(scales, self.width)
        config = {
            "architectures": ["SpecchatLastStateHead"],
            "model_type": "last_state",
            "method": self.settings.method,
            "num_heads": self.settings.depth,
        }
        self.write_folder(folder, config, tensors)
