"""EAGLE-3 (Li et al. 2025, arXiv 2503.01840): one layer over three taps, trained on its own drafts.

fc makes one state of the target's three; drafting on, the head's own state takes its place.
Weights are named as in llama.cpp's files.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Form

from training.arrays import Array, Weights
from training.files import Stored, add, finish, writer_as
from training.layer import Positions
from training.net import Batch, Head
from training.source import LAYER, regrouped

FC, NORM, OF_STATE, BLOCK = "fc.weight", "output_norm.weight", "blk.0.attn_norm_2.weight", "blk.0."
PUBLISHED = {
    NORM: "norm.weight",
    "output.weight": "lm_head.weight",
    OF_STATE: "midlayer.hidden_norm.weight",
    **{f"{BLOCK}{ours}.weight": f"midlayer.{theirs}.weight" for ours, theirs in LAYER.items()},
}
"""Names in published folders."""
_CONTEXT = 8192
"""Positions that the layer's rotation is used for at most, as told; nothing ends there."""

_UNUSED = 0.01
"""Spread of the weights of embeddings, which the target's last layer does not read: with 0.05 a
head of 120 steps got 0.23 tokens, with this 0.29."""

_UNSURE = 0.4
"""Of the last norm: what the target's layer makes of another token is not to be believed at first.
0.34 tokens after 120 steps, 0.30 without."""


_FEWEST_LAYERS = 6
"""With fewer the taps would be the same."""


def taps_of(layers: int) -> tuple[int, ...]:
    """Layers of a model whose inputs are read, () if it has too few: early, middle and late.

    The paper's choice; its code counts outputs.
    """
    return (2, layers // 2, layers - 3) if layers >= _FEWEST_LAYERS else ()


class Eagle3(Head):
    read = slice(None, -1)

    @cached_property
    def taps(self) -> tuple[int, ...]:
        return taps_of(self.source.layers)

    def first_weights(self) -> Stored:
        """The target's last layer, which reads the last tap; embeddings count for little yet."""
        random = np.random.default_rng(self.settings.seed)
        width, last = self.width, self.source.last
        weights: Stored = {}
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
        return weights

    def states(self, weights: Weights, batch: Batch) -> Iterator[tuple[Array, str]]:
        layer, run = self.layers(weights), Positions()
        state, length = self.arrays.product(batch.states, weights[FC]), batch.states.shape[1]
        while True:
            embedded = batch.embedded[:, 1 + len(run) : 1 + len(run) + length]
            inputs = [
                layer.norm(embedded, f"{BLOCK}attn_norm"),
                layer.norm(state, f"{BLOCK}attn_norm_2"),
            ]
            state = layer.run(BLOCK, self.arrays.ops.concatenate(inputs, -1), state, run)
            yield state, "output_norm"

    def for_file(self, learnt: Stored) -> Stored:
        """Weights that take states as they are."""
        fc = learnt[FC] / np.repeat(self.spread, self.width)
        return {**learnt, FC: fc, "output.weight": self.arrays.numpy(self.output)}

    def _write(self, learnt: Stored, folder: Path) -> None:
        """A published folder, and head.gguf if the target is GGUF."""
        assert self.vocabulary
        tensors = self.for_file(learnt)
        named = {PUBLISHED.get(name) or name: values for name, values in tensors.items()}
        named["t2d"] = self.vocabulary.numbers >= 0
        self.write_folder(folder, self._config, named)
        if self.source.path.is_file():
            self.write_gguf(folder / "head.gguf", tensors)

    @property
    def _config(self) -> dict[str, Any]:
        shape = self.source.shape
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_size,
            "rope_theta": shape.base,
            "max_position_embeddings": _CONTEXT,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": False,
            "target_hidden_size": shape.width,
            "eagle_aux_hidden_state_layer_ids": list(self.taps),
            "norm_before_residual": False,
        }

    def write_gguf(self, path: Path, tensors: Stored) -> None:
        """For llama.cpp: src/models/eagle3.cpp."""
        assert self.vocabulary
        shape, target = self.source.shape, self.source.path
        writer = writer_as(gguf.GGUFReader(target), path, "eagle3", "tokenizer.")
        writer.add_name(f"EAGLE-3 head for {target.stem}")
        writer.add_context_length(_CONTEXT)
        writer.add_embedding_length(shape.width)
        writer.add_block_count(1)
        writer.add_feed_forward_length(shape.feed_forward)
        writer.add_head_count(shape.heads)
        writer.add_head_count_kv(shape.kv_heads)
        writer.add_key_length(shape.head_size)
        writer.add_value_length(shape.head_size)
        writer.add_layer_norm_rms_eps(shape.epsilon)
        writer.add_rope_freq_base(shape.base)
        writer.add_rope_dimension_count(shape.head_size)
        writer.add_array("eagle3.target_layers", list(self.taps))
        writer.add_uint32("eagle3.target_hidden_size", shape.width)
        for name, values in tensors.items():
            stored = values
            if name.startswith((f"{BLOCK}attn_q.", f"{BLOCK}attn_k.")):
                heads = shape.heads if "attn_q" in name else shape.kv_heads
                stored = regrouped(values, heads, in_pairs=True)
            add(writer, name, stored, Form.F32 if stored.ndim == 1 else Form.Q8_0)
        writer.add_tensor("d2t", self.vocabulary.drafted)
        finish(writer)
