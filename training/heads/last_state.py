"""Heads that read the target's last normed state alone, which every architecture has.

Medusa (Cai et al. 2024, arXiv 2401.10774) guesses each position from it; Hydra (Ankner et al.
2024, arXiv 2402.05109) from it and the tokens drafted since; the recurrent one (as ReDrafter,
Zhang et al. 2024, arXiv 2403.09919) from it, the last token and what it made of those before.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Weights
from training.heads.head import Given, Head
from training.heads.layer import norm
from training.source import layer_shapes

_READ_LITTLE = 0.02
"""Spread of the first weights of embeddings."""
_PARTS = {
    "norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
"""Of a head, by those of the target's last layer, which they begin as."""


class LastState(Head):
    def __init__(self, given: Given) -> None:
        super().__init__(given, slice(-1, None))
        sampled = self.source.embeddings[:: max(self.source.n_vocab // 1024, 1)]
        self.embedding_scale = float(np.sqrt((sampled.astype(np.float32) ** 2).mean()))

    @property
    def n_heads(self) -> int:
        return 1 if self.settings.method == "recurrent" else self.settings.depth

    def _inputs(self, head: int) -> int:
        """Vectors that a head reads side by side."""
        return {"medusa": 1, "recurrent": 3}.get(self.settings.method, head + 2)

    def first_weights(self) -> dict[str, NDArray[np.float32]]:
        """The state itself, and the feed-forward part of the target's last layer."""
        random = np.random.default_rng(self.settings.seed)
        shapes, width = layer_shapes(self.source.shape), self.source.width
        weights: dict[str, NDArray[np.float32]] = {}
        for head in range(self.n_heads):
            read = random.normal(0.0, _READ_LITTLE, (width, self._inputs(head) * width))
            read[:, :width] = np.eye(width)
            weights[f"heads.{head}.input"] = read.astype(np.float32)
            for name, theirs in _PARTS.items():
                drawn = random.normal(0.0, _READ_LITTLE, shapes[theirs]).astype(np.float32)
                values = self.source.last.get(theirs, drawn + 1.0 if name == "norm" else drawn)
                weights[f"heads.{head}.{name}"] = values
            weights[f"heads.{head}.down"] = weights[f"heads.{head}.down"] / self.spread
            weights[f"heads.{head}.output_norm"] = np.repeat(self.spread, width)
        return weights | self.output.first_weights()

    def for_file(self, weights: Weights) -> dict[str, NDArray[np.float32]]:
        folded = dict(weights)
        for head in range(self.n_heads):
            scales = np.full(self._inputs(head), self.embedding_scale, np.float32)
            scales[0] = self.spread[0]
            if self.settings.method == "recurrent":
                scales[1] = 1.0
            name = f"heads.{head}.input"
            folded[name] = weights[name] / np.repeat(scales, self.source.width)
        return folded

    def states(self, weights: Weights, states: Array, drafted: Sequence[Array]) -> Iterator[Array]:
        product, own, position = self.arrays.product, states * 0.0, 0
        while True:
            head = f"heads.{self._head(position)}"
            read = [states, own, drafted[position]]
            if self.settings.method != "recurrent":
                read = [states, *drafted[: position + 1]][: self._inputs(self._head(position))]
            own = product(self.arrays.concatenated(read, -1), weights[f"{head}.input"])
            between = norm(own, weights[f"{head}.norm"], self.source.shape.epsilon)
            gate = self.arrays.silu(product(between, weights[f"{head}.gate"]))
            up = product(between, weights[f"{head}.up"])
            own = own + product(gate * up, weights[f"{head}.down"])
            yield own
            position += 1

    def _head(self, position: int) -> int:
        return min(position, self.n_heads - 1)

    def normed(self, weights: Weights, states: Array, position: int) -> Array:
        weight = weights[f"heads.{self._head(position)}.output_norm"]
        return norm(states, weight, self.source.shape.epsilon)
