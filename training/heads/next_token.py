"""The next-token layer that a model brings (MTP), fine-tuned on the model's own answers.

The graph is that of src/models/qwen35.cpp of llama.cpp (`graph_mtp`): the normed embedding of a
token beside the normed state before it, one layer, the model's output. It learns as it drafts: on
the model's states, then on what it made of them itself, in the place of a drafted token.
"""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np

from backends.base import DraftUnavailableError
from training.arrays import Array, Arrays, Weights
from training.files import Stored, write_copy
from training.layer import Positions
from training.net import Batch, Net
from training.settings import TrainSettings
from training.source import GgufFile

ARCHITECTURES = ("qwen35",)
_INSTEAD = "A head reads any model: --method hydra."


class NextToken(Net):
    """A layer that learns; the model's embedding and output are as they are."""

    read, spread = slice(-1, None), np.ones(1, np.float32)

    def __init__(self, arrays: Arrays, path: Path, settings: TrainSettings) -> None:
        """Read the layer of a model's file, or one in a file of its own.

        Raises:
            DraftUnavailableError: there is none, or not one that is known here.
        """
        file = GgufFile(path)
        what = f"the next-token layers of {path.name} cannot be trained"
        layers = int(file.number("nextn_predict_layers", 0))
        if layers != 1:
            why = f"it has {layers}, and one alone is known" if layers else "it has none"
            raise DraftUnavailableError(what, why, _INSTEAD)
        if file.architecture not in ARCHITECTURES:
            why = f"those of {file.architecture} are not known here"
            raise DraftUnavailableError(what, why, _INSTEAD)
        super().__init__(arrays, settings, file.source())
        self._block = f"blk.{self.source.layers}."
        self._first = file.weights(lambda name: name.startswith(self._block))
        own_norm = f"{self._block}nextn.shared_head_norm"
        self._norm = own_norm if f"{own_norm}.weight" in self._first else "output_norm"
        self.fixed = {"output_norm.weight": arrays.array(self.source.output_norm)}

    def first_weights(self) -> Stored:
        """What learns: the layer's own weights."""
        return self._first

    def states(self, weights: Weights, batch: Batch) -> Iterator[tuple[Array, str]]:
        """What the layer makes of each place, as the engine runs it: a text's first token too."""
        concatenate, block, run = self.arrays.ops.concatenate, self._block, Positions()
        layer, length = self.layers(weights), batch.states.shape[1] + 1
        state = concatenate([batch.states[:, :1] * 0.0, batch.states], 1)
        for position in count():
            embedded = batch.embedded[:, position : position + length]
            both = [
                layer.norm(embedded, f"{block}nextn.enorm"),
                layer.norm(state, f"{block}nextn.hnorm"),
            ]
            state = layer.linear(concatenate(both, -1), f"{block}nextn.eh_proj")
            state = layer.run(block, layer.norm(state, f"{block}attn_norm"), state, run)
            yield state[:, 1:], self._norm
            state = layer.norm(state, self._norm)

    def _write(self, learnt: Stored, folder: Path) -> None:
        """The layer in a file of its own, as published ones are."""
        others = re.compile(rf"(?!{re.escape(self._block)})blk\.\d")
        target = self.source.path
        path = folder / f"mtp-{target.stem}.gguf"
        write_copy(target, path, learnt, keep=lambda name: not others.match(name))
