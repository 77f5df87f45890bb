"""Exact rejection sampling on the device: the rules of decoding.verification, on MLX arrays.

Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1. Everything is computed for every drafted
token; which of it counts is found on the device too, so that three numbers come back.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from backends.mlx.warping import Weights, draw, fixed_point, to_weights


def judge(
    target: Weights,
    drafted: mx.array,
    q_draft: mx.array | None,
    uniforms: NDArray[np.float64],
) -> tuple[mx.array, mx.array, mx.array]:
    """How many of the drafted tokens stand, the token after them, and whether scores were finite.

    target: a row after the history and after each drafted token. drafted: int32, shape (n,).
    q_draft: float32, shape (n, n_vocab), None for point masses. uniforms: shape (n + 1,).
    """
    if q_draft is None:
        drawn = draw(target.ids, target.weights, fixed_point(uniforms))
        accepted = _leading(drawn[:-1] == drafted)
        next_token = drawn[accepted]
    else:
        accepted = _leading(_acceptable(target, drafted, q_draft, uniforms[:-1]))
        next_token = _after(target, accepted, q_draft, uniforms)
    sound = mx.all(target.sound | (mx.arange(len(uniforms)) > accepted))
    return accepted, next_token, sound


def _acceptable(
    target: Weights, drafted: mx.array, q_draft: mx.array, uniforms: NDArray[np.float64]
) -> mx.array:
    """Whether each token would stand: with probability min(1, p_target / q_draft)."""
    q_of_token = mx.take_along_axis(q_draft, drafted[:, None], axis=-1)[:, 0]
    level = mx.array(uniforms.astype(np.float32)) * q_of_token
    before_it = Weights(target.ids[:-1], target.weights[:-1], target.sound[:-1])
    return (level > 0.0) & (level <= before_it.of(drafted))


def _after(
    target: Weights, accepted: mx.array, q_draft: mx.array, uniforms: NDArray[np.float64]
) -> mx.array:
    """The token drawn from what the draft left uncovered, or from p_target where all stand."""
    count = len(uniforms) - 1
    ids, whole = target.ids[accepted], target.weights[accepted]
    p_target = target.probabilities()[accepted]
    q_at_ids = q_draft[mx.minimum(accepted, count - 1)][ids]
    rest = to_weights(mx.maximum(p_target - q_at_ids, 0.0))
    is_bonus = (accepted == count) | (rest.sum() == 0)
    number = fixed_point(uniforms)[mx.minimum(accepted + 1, count)]
    return draw(ids[None], mx.where(is_bonus, whole, rest)[None], number[None])[0]


def _leading(stands: mx.array) -> mx.array:
    """How many of the first are all true."""
    return mx.cumprod(stands.astype(mx.int32)).sum()
