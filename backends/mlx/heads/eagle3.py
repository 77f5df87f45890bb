"""The layers of an EAGLE-3 head: Li et al. 2025 (arXiv 2503.01840), section 3.

The graph is that of src/models/eagle3.cpp of llama.cpp, with the variants of vLLM's speculators
(src/speculators/models/eagle3/core.py: norm_before_residual, fc_norm, norm_output).
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache
from numpy.typing import NDArray

from backends.files.head_folders.eagle3_layout import Eagle3Layout
from backends.files.head_folders.head_folder import HeadFolder
from backends.mlx.context import MlxContext
from backends.mlx.heads.chain import MlxChainContext
from backends.mlx.heads.taps import add_layer_states
from backends.mlx.heads.weights import (
    Apply,
    FeedForward,
    HeadAttention,
    LoadedHead,
    dtype_of,
    embedding_of,
    output_bytes,
    output_of,
    over_all_tokens,
    require_room,
    with_weights,
)
from backends.mlx.model import MlxModel


class Eagle3Layer(nn.Module):
    def __init__(self, layout: Eagle3Layout) -> None:
        super().__init__()
        width, epsilon = layout.width, layout.epsilon
        self._keeps_normed = layout.keeps_normed
        self._window = layout.window or None
        self.input_layernorm = nn.RMSNorm(width, eps=epsilon)
        self.hidden_norm = nn.RMSNorm(width, eps=epsilon)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=epsilon)
        self.self_attn = HeadAttention(layout.attention, layout.rotary, width, epsilon)
        self.mlp = FeedForward(width, layout.feed_forward)

    def __call__(self, embedded: mx.array, states: mx.array, cache: Any) -> mx.array:
        """Both of shape (n, width), as is the result."""
        normed = self.hidden_norm(states)
        rows = mx.concatenate([self.input_layernorm(embedded), normed], axis=-1)
        position = cache.offset
        mask = cache.make_mask(len(rows), return_array=False, window_size=self._window)
        entries = cache.update_and_fetch(*self.self_attn.entries(rows, position))
        found = self.self_attn.attend(self.self_attn.queries(rows, position), entries, mask)
        states = found + (normed if self._keeps_normed else states)
        return states + self.mlp(self.post_attention_layernorm(states))


class Eagle3Layers(nn.Module):
    """A ChainModule: the fusing of the model's states, the layer, and what is after it."""

    def __init__(
        self, layout: Eagle3Layout, drafted: NDArray[np.int64] | None, target: nn.Module
    ) -> None:
        """drafted: the model's token of each of the head's. target: lends what the head lacks."""
        super().__init__()
        width, epsilon = layout.width, layout.epsilon
        inputs = layout.n_taps * layout.target_width
        self._layout = layout
        self._drafted = drafted
        if layout.norms_inputs:
            self.input_norm = nn.RMSNorm(inputs, eps=epsilon)
        if layout.norms_taps:
            norms = (nn.RMSNorm(layout.target_width, eps=epsilon) for _ in range(layout.n_taps))
            self.fc_norm = list(norms)
        self.fc = nn.Linear(inputs, width, bias=layout.has_bias)
        self.layer = Eagle3Layer(layout)
        self.norm = nn.RMSNorm(width, eps=epsilon)
        if layout.has_embeddings:
            self.embed_tokens = nn.Embedding(layout.n_vocab, width)
        if layout.has_output:
            self.lm_head = nn.Linear(width, layout.n_drafted, bias=False)
        self._lent_embedding: Apply | None = None if layout.has_embeddings else embedding_of(target)
        self._lent_output: Apply | None = None if layout.has_output else output_of(target)

    def make_cache(self) -> list[Any]:
        return [KVCache()]

    def encode(self, rows: mx.array) -> mx.array:
        """Fuse the states of several of the model's layers into one (the paper's g)."""
        rows = rows.astype(dtype_of(self))
        if self._layout.norms_inputs:
            rows = self.input_norm(rows)
        if self._layout.norms_taps:
            parts = mx.split(rows, self._layout.n_taps, axis=-1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            rows = mx.concatenate(normed, axis=-1)
        return self.fc(rows)

    def __call__(
        self, tokens: mx.array, rows: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        embedding = self._lent_embedding or self.embed_tokens
        states = self.layer(embedding(tokens).astype(rows.dtype), rows, cache[0])
        normed = self.norm(states)
        output = self._lent_output or self.lm_head
        logits = over_all_tokens(output(normed), self._drafted, self._layout.n_vocab, -mx.inf)
        return logits, normed if self._layout.hands_on_normed else states


def load_eagle3(folder: HeadFolder, target: MlxModel) -> LoadedHead:
    assert target.module is not None, "the model is closed"
    layout = folder.layout
    assert isinstance(layout, Eagle3Layout), "it was checked"
    layers = with_weights(Eagle3Layers(layout, folder.drafted, target.module), folder)
    taps = layout.taps_in(target.folder.count("num_hidden_layers"))

    def opened(context: MlxContext) -> MlxChainContext:
        """A context that runs a token at its own position, where the paper has the one before.

        Positions are rotary, so that only their distances count.
        """
        per_token = layout.attention.numbers_per_token * dtype_of(layers).size
        require_room(context.n_ctx, per_token)
        return MlxChainContext(
            layers,
            context,
            add_layer_states(context, taps),
            n_vocab=layout.n_vocab,
            kv_bytes_per_token=per_token,
            skips_first=True,
        )

    shared_bytes = 0 if layout.has_output else output_bytes(target.module)
    return LoadedHead(layers, opened, shared_bytes)
