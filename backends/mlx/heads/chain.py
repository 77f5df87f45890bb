"""Heads that draft token by token, each from the token and the state before it."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache
from numpy.typing import NDArray

from backends.base import ModelError, check_room, check_truncation
from backends.files.head_folders.eagle3_layout import Eagle3Layout
from backends.files.head_folders.head_folder import HeadFolder
from backends.heads.head import ChainHead
from backends.heads.hidden_states import HiddenStates
from backends.mlx.context import MlxContext
from backends.mlx.heads.taps import MlxHeadContext, add_layer_states, remove_states
from backends.mlx.heads.weights import (
    FeedForward,
    HeadAttention,
    LoadedHead,
    VocabularyLayers,
    dtype_of,
    output_bytes,
    require_room,
    with_weights,
)
from backends.mlx.model import MlxModel


class ChainModule(Protocol):
    """Predicts the token after a token, from it and the state of the position before it."""

    def make_cache(self) -> list[Any]: ...

    def encode(self, rows: mx.array) -> mx.array:
        """States as the layers read them, (n, width), from the model's, float32 of (n, inputs).

        EAGLE-3 fuses the inputs of several of the model's layers; MTP reads them as they are. The
        result has the type of the weights.
        """
        ...

    def __call__(
        self, tokens: mx.array, rows: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        """Append tokens, shape (n,), to the caches; all is lazy.

        rows: the state before each token, (n, width): encoded, or what an earlier pass left.
        Returns the logits after each token over the vocabulary of the model, (n, n_vocab), which
        are -inf where the head does not know a token, and the head's own states, (n, width).
        """
        ...


TOGETHER = 4
"""Most tokens of a pass whose logits are all computed though only the last are wanted.

A second pass reads the head's layers again, more rows take the output layer longer. A guess; not
measured.
"""


class MlxChainContext(ChainHead, MlxHeadContext):
    """Runs the layers of a head by MLX, as lines, perhaps with sampling on its device."""

    def __init__(
        self,
        module: ChainModule,
        target: MlxContext,
        states: HiddenStates,
        *,
        n_vocab: int,
        kv_bytes_per_token: int,
        skips_first: bool = False,
    ) -> None:
        """Draft with a module from states that the passes of a model's context leave.

        skips_first: whether the head has no entry for the first token, before which there is no
        state; otherwise that is zeros.
        """
        super().__init__(target, states, n_vocab)
        self._module: ChainModule | None = module
        self.kv_bytes_per_token = kv_bytes_per_token
        self._skips_first = skips_first
        self._caches: list[Any] = module.make_cache()
        self._ahead = 0
        """Tokens run that are not counted in yet."""
        self._left_out = 0
        """Leading tokens without an entry."""

    def rollback_to(self, length: int) -> int:
        """At most what the model has passed: the head's own state after more is not kept.

        Tokens that were left out are read once the model has passed them again.
        """
        length = self._passed(length)
        if self._left_out < length < self._states.first:
            return self._left_out  # entries cannot have a gap
        return min(length, self._first_entry) if self._first_entry < self._left_out else length

    def _kept(self) -> Sequence[mx.array]:
        return [array for one in self._caches if not one.empty() for array in one.state]

    @contextmanager
    def growing(self, count: int) -> Generator[None]:
        check_room(self, count)
        self._ahead = 0
        try:
            yield
        except (RuntimeError, ValueError) as error:
            self._forget_all()
            raise ModelError("the head could not draft", str(error)) from error

    def logits(self, tokens: mx.array, n_logits: int) -> mx.array:
        count, start = tokens.size, self.length + self._ahead
        left_out = self._without_states(start, count - n_logits)
        if left_out:
            self._left_out = self._true = start + left_out
        known = self._known(start + left_out, count - left_out)
        own = count - left_out - known
        given = tokens[left_out : left_out + known]
        rows = self._from_the_model(given, start + left_out, max(n_logits - own, 0))
        for place in range(left_out + known, count):
            rows.append(self._pass(tokens[place : place + 1], self._own_state()))
        self._ahead += count
        if n_logits == 0:
            return mx.zeros((0, self._n_vocab))
        return (rows[0] if len(rows) == 1 else mx.concatenate(rows))[-n_logits:]

    def _from_the_model(self, tokens: mx.array, start: int, n_logits: int) -> list[mx.array]:
        """Run tokens with the model's own states before them; logits of the last n_logits or more.

        What nothing asks for is not computed, as all is lazy.
        """
        count = tokens.size
        has_entries = start > self._left_out
        if self._true == start and (has_entries or start >= self._first_entry):
            self._true += count
        wanted = n_logits if n_logits > 0 and count > TOGETHER else count
        parts = [part for part in (count - wanted, wanted) if part]
        rows: list[mx.array] = []
        for part in parts:
            states = self._encoded(start, part)
            rows = [self._pass(tokens[:part], states)]
            tokens, start = tokens[part:], start + part
        return rows if n_logits else []

    def _encoded(self, start: int, count: int) -> mx.array:
        assert self._module is not None, "the context is closed"
        return self._module.encode(mx.array(self._states.before(start, count)))

    def _pass(self, tokens: mx.array, states: mx.array) -> mx.array:
        """Append tokens with the states before them; lazy float32 logits of all."""
        assert self._module is not None, "the context is closed"
        logits, own = self._module(tokens, states, self._caches)
        self._last = own[-1:]
        return logits.astype(mx.float32)

    def _has_entries_before(self, start: int) -> bool:
        return start > self._left_out

    def passed(self, tokens: Sequence[int]) -> None:
        super().passed(tokens)
        self._ahead = 0

    def truncate(self, length: int) -> None:
        check_truncation(length, len(self.tokens))
        if length == len(self.tokens):
            return
        entries = len(self.tokens) - self._left_out
        kept = max(length - self._left_out, 0)
        for cache in self._caches:
            cache.trim(entries - kept)
        del self.tokens[length:]
        self._left_out = min(self._left_out, length)
        self._true = min(self._true, length)
        self._last = None

    def _forget_all(self) -> None:
        assert self._module is not None, "the context is closed"
        self._caches = self._module.make_cache()
        self.tokens.clear()
        self._ahead = self._left_out = self._true = 0
        self._last = None

    def close(self) -> None:
        if self._module is None:
            return
        self._module = self._last = None
        self._caches.clear()
        remove_states(self._target, self._states)
        mx.clear_cache()


# The layers of an EAGLE-3 head: Li et al. 2025 (arXiv 2503.01840), section 3.
#
# The graph is that of src/models/eagle3.cpp of llama.cpp, with the variants of vLLM's speculators
# (src/speculators/models/eagle3/core.py: norm_before_residual, fc_norm, norm_output).


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


class Eagle3Layers(VocabularyLayers):
    """A ChainModule: the fusing of the model's states, the layer, and what is after it."""

    def __init__(
        self, layout: Eagle3Layout, drafted: NDArray[np.int64] | None, target: nn.Module
    ) -> None:
        super().__init__(layout, drafted, target)
        width, epsilon = layout.width, layout.epsilon
        inputs = layout.n_taps * layout.target_width
        self._layout = layout
        if layout.norms_inputs:
            self.input_norm = nn.RMSNorm(inputs, eps=epsilon)
        if layout.norms_taps:
            norms = (nn.RMSNorm(layout.target_width, eps=epsilon) for _ in range(layout.n_taps))
            self.fc_norm = list(norms)
        self.fc = nn.Linear(inputs, width, bias=layout.has_bias)
        self.layer = Eagle3Layer(layout)
        self.norm = nn.RMSNorm(width, eps=epsilon)

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
        states = self.layer(self.embedding(tokens).astype(rows.dtype), rows, cache[0])
        normed = self.norm(states)
        logits = self.over_all_tokens(self.output(normed))
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
