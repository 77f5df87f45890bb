"""Extents for a padded llama model: which width and how many layers make so many parameters."""

import math
from dataclasses import dataclass

from backends.base import UsageError

_WIDTH_PER_LAYER = 90
"""Of usual models: 8B has 4,096 by 32 layers, 70B 8,192 by 80."""

_MOST_LAYERS = 128


@dataclass(frozen=True, slots=True)
class Shape:
    """The extents of a llama model; head_size stays, the numbers of heads grow in step."""

    width: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    n_vocab: int

    @property
    def head_size(self) -> int:
        """Numbers per attention head."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """Weights of all matrices, the embedding counted once."""
        kv_width = self.kv_heads * self.head_size
        layer = self.width * (2 * self.width + 2 * kv_width + 3 * self.feed_forward)
        return self.n_vocab * self.width + self.layers * layer

    def resized(self, width: int, layers: int, feed_forward: int | None = None) -> "Shape":
        """Another width, by default with the feed-forward in proportion."""
        if feed_forward is None:
            feed_forward = math.ceil(self.feed_forward * width / self.width / 256) * 256
        heads = width // self.head_size
        kv_heads = heads * self.kv_heads // self.heads
        return Shape(width, feed_forward, layers, heads, kv_heads, self.n_vocab)


def target_shape(source: Shape, parameters: float) -> Shape:
    """A shape of about so many parameters; one that changes no rounding where there is one.

    Raises:
        UsageError: it is smaller than the source.
    """
    layers = range(source.layers, max(_MOST_LAYERS, source.layers) + 1)
    exact = [
        shape
        for factor in (4, 16)
        for count in layers
        if (shape := _with_width(source, factor * source.width, count, parameters)) is not None
    ]
    if exact:
        usual = source.feed_forward / source.width
        return min(exact, key=lambda shape: abs(shape.feed_forward / shape.width - usual))
    # A group of query heads shares a key head: whole groups only.
    unit = source.head_size * source.heads // source.kv_heads
    shapes = [_widest(source, count, unit, parameters) for count in layers]
    wide = [shape for shape in shapes if shape.width >= source.width]
    if not wide:
        raise UsageError("that is smaller than the source", f"{source.parameters:,} parameters")
    return min(wide, key=lambda shape: abs(shape.width / shape.layers - _WIDTH_PER_LAYER))


def _with_width(source: Shape, width: int, layers: int, parameters: float) -> Shape | None:
    """The shape of a width whose feed-forward makes up the parameters; None where it is odd.

    With a width of 4 or 16 times the source's, sqrt(d/D) is a power of two: norms, and with them
    every quantized activation, keep their bits.
    """
    without = source.resized(width, layers, 0).parameters
    feed_forward = round((parameters - without) / (3 * width * layers) / 256) * 256
    if not max(source.feed_forward, width) <= feed_forward <= 4 * width:
        return None
    return source.resized(width, layers, feed_forward)


def _widest(source: Shape, layers: int, unit: int, parameters: float) -> Shape:
    width = unit
    while source.resized(width + unit, layers).parameters <= parameters:
        width += unit
    return source.resized(width, layers)
