"""Exact verification on the device: the rules of decoding.verification, on MLX arrays.

Point masses are judged by what the target draws itself, drawn lines as a whole: block verification
(Sun et al. 2025, arXiv 2403.10444). Everything is computed for every drafted token; which of it
counts is found on the device too, so that three numbers come back.

Block verification adds up differences of products of probabilities, so float32 would not do: it is
computed in the whole numbers of fixed_point. Rounding enters where a row's probabilities add up to
1 within 2**-30, a ratio is right to 2**-28 of itself, and a chance to 2**-29 of what it is a part
of. That moves what is emitted by at most 2**-26 (in total variation) for each drafted token. What
plain drawing shares is coarser: weights come from an exponential in float32 (see warping), and
uniforms have 32 bits.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from backends.mlx.sampling.device_warping import Weights, draw, to_probabilities
from backends.mlx.sampling.fixed_point import (
    CERTAIN,
    FRACTION_BITS,
    PROBABILITY_BITS,
    capped,
    fraction,
    ratio,
    times,
)

_SPARE = PROBABILITY_BITS - 30


def judge(
    target: Weights,
    drafted: mx.array,
    q_draft: mx.array | None,
    uniforms: NDArray[np.float64],
) -> tuple[mx.array, mx.array, mx.array]:
    """How many of the drafted tokens stand, the token after them, and whether scores were finite.

    target: a row after the history and after each drafted token. drafted: int32, shape (n,).
    q_draft: probabilities, shape (n, n_vocab), None for point masses. uniforms: shape (n + 1,).
    """
    numbers = fraction(uniforms)
    if q_draft is None:
        drawn = draw(target.ids, target.weights, numbers)
        accepted = mx.cumprod((drawn[:-1] == drafted).astype(mx.int32)).sum()
        next_token = drawn[accepted]
        is_read = mx.arange(len(uniforms)) <= accepted
    else:
        block = weigh(target, drafted, q_draft)
        accepted = _longest(numbers[:-1] <= block.chances)
        next_token = _after(target, accepted, block.left, numbers[-1:])
        is_read = block.shares > 0
    return accepted, next_token, mx.all(target.sound | ~is_read)


@dataclass(frozen=True, slots=True)
class Block:
    """What decides how much of a drawn line of n tokens is kept.

    shares: fractions, shape (n + 1,): the joint ratio p_target / q_draft of the first i tokens,
    capped at 1 after each. left: probabilities, shape (n, ids of the target): what the next drafted
    token leaves uncovered. chances: fractions, shape (n,): of keeping at least the first i tokens,
    for i from 1.
    """

    shares: mx.array
    left: mx.array
    chances: mx.array


def weigh(target: Weights, drafted: mx.array, q_draft: mx.array) -> Block:
    """The block rule's numbers for a line, whatever the uniform numbers. Shapes as for judge."""
    before = Weights(target.ids[:-1], target.weights[:-1], target.sound[:-1])
    part, shift = before.scale()
    weight_of_token, covered = _aligned(before, drafted, q_draft)
    p_of_token = to_probabilities(weight_of_token, part, shift)[:, 0]
    q_of_token = mx.take_along_axis(q_draft, drafted[:, None], axis=-1)[:, 0]
    shares = _shares(p_of_token, q_of_token)
    reached = to_probabilities(before.weights, times(part, shares[:-1, None]), shift)
    left = mx.maximum(reached - covered, 0)
    inner = _passing(left[1:].sum(-1), shares[1:-1])
    return Block(shares, left, mx.concatenate([inner, shares[-1:]]))


def _aligned(before: Weights, drafted: mx.array, q_draft: mx.array) -> tuple[mx.array, mx.array]:
    """The target's weight of each drafted token, shape (n, 1), and q_draft of the target's ids."""
    if before.ids.shape[-1] == q_draft.shape[-1]:  # each token is listed, at its own place
        return mx.take_along_axis(before.weights, drafted[:, None], axis=-1), q_draft
    is_drafted = before.ids == drafted[:, None]
    weight_of_token = mx.where(is_drafted, before.weights, 0).sum(-1, keepdims=True)
    return weight_of_token, mx.take_along_axis(q_draft, before.ids, axis=-1)


def _shares(p_of_token: mx.array, q_of_token: mx.array) -> mx.array:
    """share[i] = min(1, share[i - 1] p_target / q_draft), from 1 on; shape (n + 1,)."""
    ratios = ratio(p_of_token, q_of_token)
    shares = [mx.array([CERTAIN], dtype=mx.int64)]
    for factor, shift in zip(*(mx.split(part, len(part)) for part in ratios), strict=True):
        shares.append(capped(shares[-1], factor, shift))
    return mx.concatenate(shares)


def _passing(left: mx.array, shares: mx.array) -> mx.array:
    """The chance of each head of a line but all: left / (left + 1 - share), 1 for 0 / 0.

    It counts only where all that may follow the head fails, which has that denominator for its
    probability: so 30 bits after the point are enough for both.
    """
    missing = (CERTAIN - shares) << (PROBABILITY_BITS - FRACTION_BITS)
    of_left, whole = left >> _SPARE, (left + missing) >> _SPARE
    chances = (of_left << FRACTION_BITS) // mx.maximum(whole, 1)
    return mx.where(whole == 0, CERTAIN, chances)


def _longest(passes: mx.array) -> mx.array:
    """The length of the longest head that passes, whichever shorter ones do not."""
    return mx.where(passes, mx.arange(1, len(passes) + 1), 0).max()


def _after(target: Weights, accepted: mx.array, left: mx.array, number: mx.array) -> mx.array:
    """The token drawn from what the draft left uncovered, or from p_target where all stand."""
    count = len(left)
    rest = left[mx.minimum(accepted, count - 1)]
    is_whole = (accepted == count) | (rest.sum() == 0)
    weights = mx.where(is_whole, target.weights[accepted], rest)
    return draw(target.ids[accepted][None], weights[None], number)[0]
