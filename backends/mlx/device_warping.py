"""Fixed-point probabilities, for devices without float64.

Integer sums are exact in any order of summation. A *fraction* is a multiple of 2**-32 from 0 to 1:
a uniform number, or a chance it is compared with. A *probability* is a multiple of 2**-57, so that
those of a row add up to 2**57. All are int64.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from backends.base import Warping

FRACTION_BITS = 32
PROBABILITY_BITS = 57
CERTAIN = 1 << FRACTION_BITS
"""The fraction 1."""

_POWERS = tuple(1 << bit for bit in range(62))


def fraction(uniforms: NDArray[np.float64]) -> mx.array:
    """Numbers in (0, 1] as fractions, rounded up so that none is 0."""
    return mx.array(np.ceil(uniforms * float(CERTAIN)).astype(np.int64))


def times(number: mx.array, part: mx.array) -> mx.array:
    """Product of a number from 0 to 2**58 and a fraction, rounded down by less than 2.

    The product needs 90 bits and is computed in two parts.
    """
    high, low = number >> 30, number & ((1 << 30) - 1)
    return ((high * part) >> 2) + ((low * part) >> 32)


def inverse(total: mx.array) -> tuple[mx.array, mx.array]:
    """2**(width - 1) / total as a fraction, with relative error 2**-30, and the width of total.

    total: from 1 to 2**58 - 1.
    """
    bits = width(total)
    return (1 << 62) // (total << (58 - bits) >> 27), bits


def ratio(numerator: mx.array, denominator: mx.array) -> tuple[mx.array, mx.array]:
    """Quotient of two numbers as factor * 2**-shift, with relative error 2**-28.

    Both are from 0 to 2**58; the ratio over 0 is 0. factor is below 2**31, and shift from 0 to 63:
    a ratio above 2**29 becomes 2**29 or more.
    """
    above, below = width(numerator), width(denominator)
    short = denominator << (61 - below) >> 30
    factor = (numerator << (61 - above)) // mx.maximum(short, 1)
    return mx.where(denominator > 0, factor, 0), mx.clip(30 + below - above, 0, 63)


def capped(part: mx.array, factor: mx.array, shift: mx.array) -> mx.array:
    """Fraction min(1, part * factor * 2**-shift), of a fraction and a ratio."""
    return mx.minimum((part * factor) >> shift, CERTAIN)


def width(numbers: mx.array) -> mx.array:
    """Bit lengths of numbers below 2**62, elementwise."""
    return (numbers[..., None] >= mx.array(_POWERS, dtype=mx.int64)).sum(-1).astype(mx.int64)


# Warping logits and drawing tokens on the device.
#
# The rules of decoding.sampling.distribution.warp, in the same order. GPUs have no float64, and
# float32 sums depend on the order of summation: over a large vocabulary their error exceeds 1e-5.
# So each token's weight, its probability relative to the likeliest token, is a multiple of 2**-40,
# and sums are exact in int64. The remaining rounding is that of one exponential in float32:
# probabilities have a relative error of about 1e-6, and tokens below 2**-40 of the likeliest have
# none. Values within that error of a threshold (top-p, min-p, a uniform number) may fall on its
# other side.


_LIKELIEST_BITS = 40
_LIKELIEST = 1 << _LIKELIEST_BITS
"""Weight of the most likely token. 2**18 of them add up to 2**58."""

_GROUP = 64
_ID = (1 << 31) - 1
"""The bits of a sorting key that hold a token's id."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Lazy rows of distributions on the device.

    ids: int32, shape (rows, n), ascending. weights: int64, shape (rows, n); a token's probability
    is its share of its row's sum. sound: bool, shape (rows,); False where no score is finite.
    """

    ids: mx.array
    weights: mx.array
    sound: mx.array

    def probabilities(self) -> mx.array:
        """Fixed-point probabilities, shape (rows, n); a row's sum is 1 within 2**-30."""
        return to_probabilities(self.weights, *self.scale())

    def scale(self) -> tuple[mx.array, mx.array]:
        """Scale of each row for to_probabilities: a fraction and a shift, shape (rows, 1)."""
        # With NaN scores the sum can be anything.
        total = mx.clip(self.weights.sum(-1, keepdims=True), _LIKELIEST, (1 << 58) - 1)
        part, width = inverse(total)
        return part, width - 1 - _LIKELIEST_BITS

    def dense(self, n_vocab: int) -> mx.array:
        """Fixed-point probabilities of every token, shape (rows, n_vocab)."""
        nothing = mx.zeros((self.ids.shape[0], n_vocab), dtype=mx.int64)
        return mx.put_along_axis(nothing, self.ids, self.probabilities(), axis=-1)


def warp(logits: mx.array, warping: Warping) -> Weights:
    """Warp logits, shape (rows, n_vocab), to distributions."""
    logits = logits.astype(mx.float32)
    best = logits.max(-1, keepdims=True)
    sound = mx.isfinite(best[:, 0])
    if warping.temperature == 0.0:
        ids = mx.argmax(logits, axis=-1, keepdims=True).astype(mx.int32)
        return Weights(ids, mx.full(ids.shape, _LIKELIEST, dtype=mx.int64), sound)
    ids, scores = _chosen(logits, warping)
    scores = scores - best
    weights = _to_weights(mx.exp(scores / warping.temperature))
    if warping.min_p > 0.0:
        weights = mx.where(mx.exp(scores) >= warping.min_p, weights, 0)
    return Weights(ids, weights, sound)


def to_probabilities(weights: mx.array, part: mx.array, shift: mx.array) -> mx.array:
    """Fixed-point probabilities of weights, shape (rows, n), given the scale of their rows."""
    return times(weights << (PROBABILITY_BITS - _LIKELIEST_BITS), part) >> shift


def draw(ids: mx.array, weights: mx.array, uniforms: mx.array) -> mx.array:
    """Draw a token per row by inverting the cumulative distribution.

    ids, weights: shape (rows, n); uniforms: fractions, shape (rows,). A token of weight 0 is
    never drawn.
    """
    cumulative = mx.cumsum(weights, axis=-1)
    bound = mx.maximum(
        times(cumulative[:, -1], uniforms), 1
    )  # at least 1, so that weight 0 is never drawn
    place = (cumulative < bound[:, None]).sum(-1, keepdims=True)
    # Rows of NaN scores have no weight; an index past the end would not be checked.
    place = mx.minimum(place, ids.shape[-1] - 1)
    return mx.take_along_axis(ids, place, axis=-1)[:, 0]


def _to_weights(values: mx.array) -> mx.array:
    return (values * float(_LIKELIEST)).astype(mx.int64)


def _chosen(logits: mx.array, warping: Warping) -> tuple[mx.array, mx.array]:
    """Ids kept by top-k, ascending, with scores; -inf for tokens excluded by top-p."""
    n_vocab = logits.shape[-1]
    count = warping.top_k if 0 < warping.top_k < n_vocab else n_vocab
    if count == n_vocab and warping.top_p >= 1.0:
        return mx.broadcast_to(mx.arange(n_vocab, dtype=mx.int32), logits.shape), logits
    ids = _most_likely(logits, count, ordered=warping.top_p < 1.0)
    scores = mx.take_along_axis(logits, ids, axis=-1)
    if warping.top_p < 1.0:
        scores = mx.where(_in_nucleus(scores, warping.top_p), scores, -mx.inf)
    order = mx.argsort(ids, axis=-1)
    return mx.take_along_axis(ids, order, axis=-1), mx.take_along_axis(scores, order, axis=-1)


def _most_likely(logits: mx.array, count: int, *, ordered: bool = False) -> mx.array:
    """Ids of the count highest logits, the lower id on ties; ordered: the highest first.

    In a large vocabulary only the count groups of neighbours with the highest maxima are sorted.
    """
    groups = -(-logits.shape[-1] // _GROUP)
    if groups < 2 * count:
        return _sorted_out(logits, count, ordered=ordered)
    padding = groups * _GROUP - logits.shape[-1]
    padded = mx.pad(logits, [(0, 0), (0, padding)], constant_values=-mx.inf)
    grouped = padded.reshape(-1, groups, _GROUP)
    best = mx.sort(_most_likely(grouped.max(-1), count), axis=-1)
    candidates = mx.take_along_axis(grouped, best[:, :, None], axis=1).flatten(1)
    places = _sorted_out(candidates, count, ordered=ordered)
    return mx.take_along_axis(best, places // _GROUP, axis=-1) * _GROUP + places % _GROUP


def _sorted_out(logits: mx.array, count: int, *, ordered: bool) -> mx.array:
    """Ids of the count highest logits, by sorting distinct keys: a logit's bits above its id."""
    bits = mx.where(logits == 0.0, 0.0, logits).view(mx.int32)
    ascending = mx.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(mx.int64)
    keys = (~ascending << 32) | mx.arange(logits.shape[-1], dtype=mx.int64)
    if count < logits.shape[-1]:
        keys = mx.partition(keys, count - 1, axis=-1)[:, :count]
    if ordered:
        keys = mx.sort(keys, axis=-1)
    return (keys & _ID).astype(mx.int32)


def _in_nucleus(scores: mx.array, top_p: float) -> mx.array:
    """Mask of the smallest prefix of descending scores with cumulative probability top_p."""
    weights = _to_weights(mx.exp(scores - scores[:, :1]))
    cumulative = mx.cumsum(weights, axis=-1)
    wanted = times(cumulative[:, -1:], mx.array(int(top_p * CERTAIN), dtype=mx.int64))
    return cumulative - weights < wanted
