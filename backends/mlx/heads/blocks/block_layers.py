"""The layers of DFlash heads (arXiv 2602.06036), DFlash2's included.

The graph is that of src/models/dflash.cpp of llama.cpp.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache

from backends.files.head_folders.block_layout import BlockLayout, LayerSight, Selector
from backends.mlx.heads.head_attention import Entries, FeedForward, HeadAttention


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
    """One layer, over a block after entries made from what the model left."""

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
        """Rows of a block, (n, width); the cache stays as it is."""
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
    """Entries of a cache, and those of a block after them."""
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


class BlockBackbone(nn.Module):
    """What all kinds of heads of blocks have: fusing, layers, and a final norm."""

    def __init__(self, layout: BlockLayout) -> None:
        super().__init__()
        width, epsilon = layout.width, layout.epsilon
        self.fc = nn.Linear(len(layout.taps) * layout.target_width, width, bias=False)
        self.hidden_norm = nn.RMSNorm(width, eps=epsilon)
        self.layers = [BlockLayer(layout, sight) for sight in layout.layers]
        self.norm = nn.RMSNorm(width, eps=epsilon)

    def make_cache(self) -> list[Any]:
        """Empty caches, one per layer."""
        return [KVCache() for _ in self.layers]

    def inject(self, rows: mx.array, caches: list[Any]) -> None:
        """Append entries made from the model's states, float32 of (n, inputs)."""
        fused = self.hidden_norm(self.fc(rows.astype(self.norm.weight.dtype)))
        for layer, cache in zip(self.layers, caches, strict=True):
            cache.update_and_fetch(*layer.self_attn.entries(fused, cache.offset))

    def states(self, embedded: mx.array, caches: list[Any]) -> mx.array:
        """Normed states of a block after the entries, (n, width), from its embeddings."""
        rows = embedded.astype(self.norm.weight.dtype)
        for layer, cache in zip(self.layers, caches, strict=True):
            rows = layer(rows, cache)
        return self.norm(rows)
