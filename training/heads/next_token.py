"""The next-token layer that a model brings (MTP), fine-tuned on the model's own answers.

The graph is that of src/models/qwen35.cpp of llama.cpp (`graph_mtp`): the normed embedding of a
token beside the normed state before it, one layer, the model's output. It learns as it drafts: on
the model's states, then on what it made of them itself, in the place of a drafted token.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import gguf
import numpy as np

from backends.base import DraftUnavailableError
from training.arrays import Array, Arrays, Weights
from training.copies import write_copy
from training.distil import Batch, accepted, batch_of, logits, rejected_share
from training.llama import EMBEDDING, OUTPUT, Layers, Rotation, Stored, causal, read_shape
from training.samples import Sample
from training.settings import TrainSettings
from training.teaching import missed

ARCHITECTURES = ("qwen35",)
_INSTEAD = "A head reads any model: --method hydra."


class NextToken:
    """A layer that learns; the model's embedding and output are as they are."""

    def __init__(self, arrays: Arrays, path: Path, settings: TrainSettings) -> None:
        """Read the layer of a model's file, or one in a file of its own.

        Raises:
            DraftUnavailableError: there is none, or not one that is known here.
        """
        reader = gguf.GGUFReader(path)
        architecture = str(reader.fields["general.architecture"].contents())
        what = f"the next-token layers of {path.name} cannot be trained"
        field = reader.get_field(f"{architecture}.nextn_predict_layers")
        count = int(field.contents()) if field else 0
        if count != 1:
            why = f"it has {count}, and one alone is known" if count else "it has none"
            raise DraftUnavailableError(what, why, _INSTEAD)
        if architecture not in ARCHITECTURES:
            why = f"those of {architecture} are not known here"
            raise DraftUnavailableError(what, why, _INSTEAD)
        self._arrays, self._settings, self._path = arrays, settings, path
        self._shape = read_shape(reader)
        self._block = f"blk.{self._shape.layers - 1}."
        self.stored: Stored = {
            tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            for tensor in reader.tensors
            if self._is_kept(tensor.name)
        }
        self._output = OUTPUT if OUTPUT in self.stored else EMBEDDING
        own = self.first_weights()
        self._fixed = {
            name: arrays.array(one) for name, one in self.stored.items() if name not in own
        }

    def _is_kept(self, name: str) -> bool:
        """Whether a tensor of the model is in a file of the layer."""
        return name.startswith(self._block) or not re.match(r"blk\.\d", name)

    def first_weights(self) -> Stored:
        """What learns: the layer's own weights."""
        return {name: one for name, one in self.stored.items() if name.startswith(self._block)}

    def prepared(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Batch:
        n_vocab, depth = len(self.stored[EMBEDDING]), self._settings.depth
        return batch_of(self._arrays, samples, n_vocab, depth, random, with_states=True)

    def loss(self, weights: Weights, prepared: Batch, progress: float) -> Array:
        share, decay = rejected_share(self._settings, progress), self._settings.weights
        losses = [
            weight * missed(self._arrays, rows, prepared.taught, share)
            for weight, rows in zip(decay, self._logits(weights, prepared), strict=False)
        ]
        return sum(losses[1:], losses[0]) / sum(decay)

    def accepted(self, weights: Weights, prepared: Batch) -> tuple[float, int]:
        drafted = list(islice(self._logits(weights, prepared), self._settings.depth))
        return accepted(self._arrays, drafted, prepared)

    def _logits(self, weights: Weights, batch: Batch) -> Iterator[Array]:
        for states in self.passes(weights, batch.tokens, batch.states):
            yield logits(self._arrays, states, self._fixed[self._output], batch)

    @property
    def stored_bytes(self) -> int:
        return sum(one.nbytes for one in self.stored.values())

    def passes(self, weights: Weights, tokens: Array, before: Array) -> Iterator[Array]:
        """Normed states after each token, as the first drafted one, as the second, and so on.

        tokens: (B, T). before: the model's states before them, (B, T, width). Each pass reads the
        first one's keys and values before its own position, which are those of true states.
        """
        arrays, block, length = self._arrays, self._block, tokens.shape[1]
        whole = {**self._fixed, **weights}
        layers = Layers(arrays, self._shape, whole, Rotation.of(arrays, self._shape, length))
        embedded = layers.norm(arrays.rows(whole[EMBEDDING], tokens), f"{block}nextn.enorm")
        own_norm = f"{block}nextn.shared_head_norm"
        last_norm = own_norm if f"{own_norm}.weight" in whole else "output_norm"
        mask, earlier = causal(arrays, length), None
        while True:
            both = [embedded, layers.norm(before, f"{block}nextn.hnorm")]
            x = layers.linear(arrays.concatenated(both, -1), f"{block}nextn.eh_proj")
            normed = layers.norm(x, f"{block}attn_norm")
            found, entries = layers.attention(normed, block, mask, earlier)
            x = x + found
            x = x + layers.feed_forward(layers.norm(x, f"{block}post_attention_norm"), block)
            x = layers.norm(x, last_norm)
            yield x
            before = arrays.concatenated([0.0 * x[:, :1], x[:, :-1]], 1)
            mask, earlier = causal(arrays, length, with_own=False), earlier or entries

    def write(self, learnt: Stored, path: Path) -> None:
        """Write the layer in a file of its own, as published ones are."""
        write_copy(self._path, path, learnt, keep=self._is_kept)
