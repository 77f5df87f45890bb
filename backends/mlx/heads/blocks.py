"""Heads of blocks: DFlash (arXiv 2602.06036), and DSpark and DFlash2 on it.

The graph is that of src/models/dflash.cpp of llama.cpp.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache
from numpy.typing import NDArray

from backends.base import Block, ModelError
from backends.files.head_folders.block_layout import BlockLayout, LayerSight, Selector
from backends.files.head_folders.head_folder import HeadFolder
from backends.heads.head import BlockHead, after_likeliest, in_lattice, independent
from backends.heads.hidden_states import Rows
from backends.mlx.context import MlxContext
from backends.mlx.heads.taps import add_layer_states, remove_states
from backends.mlx.heads.weights import (
    Entries,
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


class BlockConvolution(nn.Module):
    """Convolutions over a block before and after a part of a layer (DFlash2).

    Coefficients follow from what the part reads, one for each group of numbers, on top of fixed
    ones. Places before the block are zeros.
    """

    def __init__(self, selector: Selector, width: int) -> None:
        super().__init__()
        kernel, group = selector.kernel, selector.group
        self._kernel, self._group = kernel, group
        self.base_kernel = mx.zeros((2, kernel, width))
        self.kernel_projection = nn.Linear(width, 2 * kernel * (width // group), bias=False)

    def coefficients(self, rows: mx.array) -> mx.array:
        """Of both sides, from what the part reads: shape (2, n, kernel, width)."""
        found = self.kernel_projection(rows).reshape(len(rows), 2, self._kernel, -1)
        base = self.base_kernel.astype(rows.dtype)
        return mx.repeat(found, self._group, axis=-1).swapaxes(0, 1) + base[:, None]

    def over(self, rows: mx.array, coefficients: mx.array) -> mx.array:
        """Rows of a block, (n, width), joined with those before; coefficients: of one side."""
        result = coefficients[:, 0] * rows
        for tap in range(1, min(self._kernel, len(rows))):
            before = mx.pad(rows[:-tap], [(tap, 0), (0, 0)])
            result = result + coefficients[:, tap] * before
        return result


class BlockLayer(nn.Module):
    def __init__(self, layout: BlockLayout, sight: LayerSight) -> None:
        super().__init__()
        width, epsilon = layout.width, layout.epsilon
        self._sight = sight
        self._value_scale = layout.value_scale
        self._has_convolutions = layout.selector is not None
        self.input_layernorm = nn.RMSNorm(width, eps=epsilon)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=epsilon)
        self.self_attn = HeadAttention(layout.attention, layout.rotary, width, epsilon)
        self.mlp = FeedForward(width, layout.feed_forward)
        if layout.selector is not None:
            self.attention_conv = BlockConvolution(layout.selector, width)
            self.mlp_conv = BlockConvolution(layout.selector, width)

    def __call__(self, rows: mx.array, cache: Any) -> mx.array:
        normed = self.input_layernorm(rows)
        if self._has_convolutions:
            before, after = self.attention_conv.coefficients(normed)
            found = self._attended(self.attention_conv.over(normed, before), cache)
            rows = rows + self.attention_conv.over(found, after)
            normed = self.post_attention_layernorm(rows)
            before, after = self.mlp_conv.coefficients(normed)
            inner = self.mlp(self.mlp_conv.over(normed, before))
            return rows + self.mlp_conv.over(inner, after)
        rows = rows + self._attended(normed, cache)
        return rows + self.mlp(self.post_attention_layernorm(rows))

    def _attended(self, rows: mx.array, cache: Any) -> mx.array:
        position = cache.offset
        own = self.self_attn.entries(rows, position)
        entries = _joined(cache, own) if position else own
        mask = _mask(self._sight, position, len(rows))
        found = self.self_attn.attend(self.self_attn.queries(rows, position), entries, mask)
        return found if self._value_scale == 1.0 else self._value_scale * found


def _joined(cache: Any, own: Entries) -> Entries:
    held = cache.keys_and_values()
    return mx.concatenate([held[0], own[0]], axis=2), mx.concatenate([held[1], own[1]], axis=2)


def _mask(sight: LayerSight, position: int, count: int) -> mx.array | str | None:
    """What each place of a block sees of the positions up to its end."""
    if not sight.window:
        return "causal" if sight.is_causal and count > 1 else None
    places = mx.arange(position, position + count)[:, None]
    seen = mx.arange(position + count)[None]
    mask = places < seen + sight.window
    return mask & (seen <= places) if sight.is_causal else mask


class MarkovHead(nn.Module):
    """Scores of a token after another (DSpark's vanilla head), as a product of two matrices."""

    def __init__(self, layout: BlockLayout) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(layout.n_vocab, layout.markov_rank)
        self.markov_w2 = nn.Linear(layout.markov_rank, layout.n_drafted, bias=False)

    def __call__(self, before: mx.array) -> mx.array:
        return self.markov_w2(self.markov_w1(before))


class CandidateSelector(nn.Module):
    """Scores of pairs of neighbouring candidates (DFlash2)."""

    def __init__(self, rank: int, width: int, n_vocab: int) -> None:
        super().__init__()
        self.hidden_projection = nn.Linear(width, rank, bias=False)
        self.predecessor_codebook = nn.Embedding(n_vocab, rank)
        self.successor_codebook = nn.Embedding(n_vocab, rank)


class BlockDrafter(VocabularyLayers):
    def __init__(
        self, layout: BlockLayout, drafted: NDArray[np.int64] | None, target: nn.Module
    ) -> None:
        super().__init__(layout, drafted, target)
        width, epsilon = layout.width, layout.epsilon
        self._layout = layout
        self.fc = nn.Linear(len(layout.taps) * layout.target_width, width, bias=False)
        self.hidden_norm = nn.RMSNorm(width, eps=epsilon)
        self.layers = [BlockLayer(layout, sight) for sight in layout.layers]
        self.norm = nn.RMSNorm(width, eps=epsilon)
        if layout.markov_rank:
            self.markov_head = MarkovHead(layout)
        if layout.selector is not None:
            self.candidate_selector = CandidateSelector(layout.selector.rank, width, layout.n_vocab)

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self.layers]

    def inject(self, rows: mx.array, caches: list[Any]) -> None:
        """Append entries made from the model's states, float32 of (n, inputs)."""
        fused = self.hidden_norm(self.fc(rows.astype(self.norm.weight.dtype)))
        for layer, cache in zip(self.layers, caches, strict=True):
            cache.update_and_fetch(*layer.self_attn.entries(fused, cache.offset))

    def states(self, block: mx.array, caches: list[Any]) -> mx.array:
        """Normed states of a block of tokens after the entries, (n, width)."""
        embedded = self._layout.embedding_scale * self.embedding(block)
        rows = embedded.astype(self.norm.weight.dtype)
        for layer, cache in zip(self.layers, caches, strict=True):
            rows = layer(rows, cache)
        return self.norm(rows)

    def logits(self, states: mx.array) -> mx.array:
        layout = self._layout
        rows = self.output(states).astype(mx.float32) * layout.logit_scale
        if layout.softcap:
            rows = layout.softcap * mx.tanh(rows / layout.softcap)
        return self.over_all_tokens(rows)

    def chained(self, states: mx.array, before: int) -> mx.array:
        """Rows each after the likeliest token of the one before it, (n, n_vocab); DSpark.

        before: token before the first place.
        """
        base, token = self.logits(states), mx.array([before])
        rows: list[mx.array] = []
        for place in range(len(states)):
            bias = self.over_all_tokens(self.markov_head(token), fill=0.0)
            rows.append(base[place : place + 1] + bias)
            token = mx.argmax(rows[-1], axis=-1)
        return mx.concatenate(rows)

    def lattice(self, states: mx.array, before: int) -> mx.array:
        """Candidates of each place and scores of pairs, for in_lattice; DFlash2.

        before: token before the first place. A row has the ids of its candidates and then, for each
        candidate of the place before, their scores.
        """
        selector, parts = self._layout.selector, self.candidate_selector
        assert selector is not None, "it has one"
        count, candidates = len(states), selector.candidates
        logits = self.logits(states)
        ids = mx.argpartition(-logits, candidates - 1, axis=-1)[:, :candidates]
        unary = mx.take_along_axis(logits, ids, axis=-1)
        gates = parts.hidden_projection(states)[:, None]
        successors = parts.successor_codebook(ids).swapaxes(-1, -2)
        anchors = mx.full((1, candidates), before, dtype=ids.dtype)
        earlier = mx.concatenate([anchors, ids[:-1]])
        pairs = (parts.predecessor_codebook(earlier) * gates) @ successors
        scores = pairs.astype(mx.float32) + unary[:, None]
        return mx.concatenate([ids.astype(mx.float32), scores.reshape(count, -1)], axis=-1)


class MlxBlockPasses:
    """Layers of a head with caches of their own. A failed pass leaves them without entries."""

    def __init__(self, drafter: BlockDrafter, layout: BlockLayout) -> None:
        self._drafter: BlockDrafter | None = drafter
        self._layout = layout
        self._caches: list[Any] = drafter.make_cache()
        self._first = 0
        """Position of the first entry."""

    def inject(self, start: int, rows: Rows) -> None:
        """Only begun here: the next block's pass waits for it."""
        drafter = self._opened()
        if self._entries == 0:
            self._first = start
        assert start == self._first + self._entries, "entries have no gaps"
        with self._guarded():
            drafter.inject(mx.array(rows), self._caches)
            mx.async_eval([(cache.keys, cache.values) for cache in self._caches])

    def remove(self, length: int) -> None:
        surplus = self._entries - max(length - self._first, 0)
        for cache in self._caches if surplus > 0 else ():
            cache.trim(surplus)

    def draft(self, start: int, known: Sequence[int], count: int) -> Block:
        drafter, layout = self._opened(), self._layout
        assert self._entries in (0, start - self._first), "a block follows the entries"
        masks = count - 1 if layout.from_last else count
        block = mx.array([*known, *[layout.mask] * masks])
        with self._guarded():
            states = drafter.states(block, self._caches)[-count:]
            if layout.selector is not None:
                lattice = _on_host(drafter.lattice(states, known[-1]))
                return in_lattice(lattice, layout.selector.candidates, layout.n_vocab)
            if layout.markov_rank:
                return after_likeliest(_on_host(drafter.chained(states, known[-1])))
            return independent(_on_host(drafter.logits(states)))

    @property
    def _entries(self) -> int:
        return self._caches[0].offset

    @contextmanager
    def _guarded(self) -> Generator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            self._caches = self._opened().make_cache()
            raise ModelError("the head could not draft", str(error)) from error

    def _opened(self) -> BlockDrafter:
        assert self._drafter is not None, "the context is closed"
        return self._drafter

    def close(self) -> None:
        self._drafter = None
        self._caches.clear()
        mx.clear_cache()


def _on_host(rows: mx.array) -> Rows:
    """Copy of float32 rows, which are computed here."""
    return np.array(rows, np.float32)


def load_dflash(folder: HeadFolder, target: MlxModel) -> LoadedHead:
    assert target.module is not None, "the model is closed"
    layout = folder.layout
    assert isinstance(layout, BlockLayout), "it was checked"
    drafter = with_weights(BlockDrafter(layout, folder.drafted, target.module), folder)

    def opened(context: MlxContext) -> BlockHead:
        per_token = len(layout.layers) * layout.attention.numbers_per_token * dtype_of(drafter).size
        require_room(context.n_ctx, per_token)
        states = add_layer_states(context, layout.taps)
        return BlockHead(
            MlxBlockPasses(drafter, layout),
            states,
            longest=layout.longest,
            n_vocab=layout.n_vocab,
            n_ctx=context.n_ctx,
            n_chunk=context.n_chunk,
            kv_bytes_per_token=per_token,
            on_close=lambda: remove_states(context, states),
        )

    has_output = layout.has_output or layout.ties_output
    return LoadedHead(drafter, opened, 0 if has_output else output_bytes(target.module))
