"""From rows of logits to probabilities and drawn tokens, without leaving the device.

The same rules as decoding.sampling.warp, in the same order. GPUs have no float64, and sums of
float32 depend on how the device orders them: over a large vocabulary they are wrong by 1e-5 and
more. So each token's weight, its probability relative to the likeliest, is a whole number of
2**-40, and sums are of int64: exact, in whatever order. What is left of rounding is that of one
exponential in float32: each probability is right to about 1e-6 of itself, and tokens less likely
than 2**-40 of the likeliest have none. A settings' border (top-p, min-p) or a uniform that lies
within that of a border may fall on its other side.
"""

from dataclasses import dataclass

import mlx.core as mx

from backends.base import Warping
from backends.mlx.sampling.fixed_point import CERTAIN, PROBABILITY_BITS, inverse, times

_LIKELIEST_BITS = 40
_LIKELIEST = 1 << _LIKELIEST_BITS
"""The weight of the most likely token. 2**18 of them add up to 2**58."""

_GROUP = 64
_ID = (1 << 31) - 1
"""The bits of a sorting key that hold a token's id."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Rows of distributions on the device, not computed yet.

    ids: int32, shape (rows, n), ascending. weights: int64, shape (rows, n); a token's probability
    is its share of its row's sum. sound: bool, shape (rows,); False where no score is finite.
    """

    ids: mx.array
    weights: mx.array
    sound: mx.array

    def probabilities(self) -> mx.array:
        """Probabilities of fixed_point, shape (rows, n); a row's sum is right to 2**-30."""
        return to_probabilities(self.weights, *self.scale())

    def scale(self) -> tuple[mx.array, mx.array]:
        """What to_probabilities needs for each row: a fraction and a shift, shape (rows, 1)."""
        # Scores that are no numbers leave any sum at all.
        total = mx.clip(self.weights.sum(-1, keepdims=True), _LIKELIEST, (1 << 58) - 1)
        part, width = inverse(total)
        return part, width - 1 - _LIKELIEST_BITS

    def dense(self, n_vocab: int) -> mx.array:
        """Probabilities of fixed_point, shape (rows, n_vocab): that of every token."""
        nothing = mx.zeros((self.ids.shape[0], n_vocab), dtype=mx.int64)
        return mx.put_along_axis(nothing, self.ids, self.probabilities(), axis=-1)


def warp(logits: mx.array, warping: Warping) -> Weights:
    """The distributions that warping makes of logits, shape (rows, n_vocab)."""
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
    """Weights, shape (rows, n), times the scale of their rows."""
    return times(weights << (PROBABILITY_BITS - _LIKELIEST_BITS), part) >> shift


def draw(ids: mx.array, weights: mx.array, uniforms: mx.array) -> mx.array:
    """The token of each row at its uniform, by the inverse of the cumulative distribution.

    ids, weights: shape (rows, n); uniforms: fractions, shape (rows,). A token of weight 0 is
    never drawn.
    """
    cumulative = mx.cumsum(weights, axis=-1)
    bound = mx.maximum(times(cumulative[:, -1], uniforms), 1)  # never 0: no weight is below it
    place = (cumulative < bound[:, None]).sum(-1, keepdims=True)
    # Scores that are no numbers leave rows without weight; an index past the end is not checked.
    place = mx.minimum(place, ids.shape[-1] - 1)
    return mx.take_along_axis(ids, place, axis=-1)[:, 0]


def _to_weights(values: mx.array) -> mx.array:
    """Numbers from 0 to 1 as weights."""
    return (values * float(_LIKELIEST)).astype(mx.int64)


def _chosen(logits: mx.array, warping: Warping) -> tuple[mx.array, mx.array]:
    """Ids, ascending, of what top-k leaves, with scores; -inf for what top-p leaves out."""
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
    """Ids of the count highest logits, of equal ones the first; ordered: the highest first.

    In a large vocabulary they are in the count groups of neighbours with the highest maxima.
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
    """The same by sorting whole numbers made of a logit above its id: no two are equal."""
    bits = mx.where(logits == 0.0, 0.0, logits).view(mx.int32)
    ascending = mx.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(mx.int64)
    keys = (~ascending << 32) | mx.arange(logits.shape[-1], dtype=mx.int64)
    if count < logits.shape[-1]:
        keys = mx.partition(keys, count - 1, axis=-1)[:, :count]
    if ordered:
        keys = mx.sort(keys, axis=-1)
    return (keys & _ID).astype(mx.int32)


def _in_nucleus(scores: mx.array, top_p: float) -> mx.array:
    """Which of descending scores are the fewest that hold top_p of the mass."""
    weights = _to_weights(mx.exp(scores - scores[:, :1]))
    cumulative = mx.cumsum(weights, axis=-1)
    wanted = times(cumulative[:, -1:], mx.array(int(top_p * CERTAIN), dtype=mx.int64))
    return cumulative - weights < wanted
