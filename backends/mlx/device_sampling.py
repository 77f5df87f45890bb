"""Exact verification on the device: the rules of decoding.verification on MLX arrays.

Point masses are verified by drawing from the target, drawn lines as a block: block verification
(Sun et al. 2025, arXiv 2403.10444). Everything is computed for every drafted token, and the device
also selects what counts, so that only three numbers are copied to the host.

Block verification sums differences of products of probabilities, for which float32 is too coarse:
it is computed in fixed point. Rounding enters where a row's probabilities sum to 1 within 2**-30,
a ratio has relative error 2**-28, and a chance has error 2**-29 relative to its whole. That changes
the emitted distribution by at most 2**-26 (in total variation) per drafted token. Plain sampling
has coarser errors: weights come from an exponential in float32 (see device_warping), and uniforms
have 32 bits.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from backends.base import DeviceRow, Drawn, Listener, ModelError, Warping
from backends.mlx.device_warping import (
    CERTAIN,
    FRACTION_BITS,
    PROBABILITY_BITS,
    Weights,
    capped,
    draw,
    fraction,
    ratio,
    times,
    to_probabilities,
    warp,
)

_SPARE = PROBABILITY_BITS - 30


def judge(
    target: Weights,
    drafted: mx.array,
    q_draft: mx.array | None,
    uniforms: NDArray[np.float64],
) -> tuple[mx.array, mx.array, mx.array]:
    """Number of accepted tokens, the token after them, and whether scores were finite.

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
    """Acceptance of a drawn line of n tokens by block verification.

    shares: fractions, shape (n + 1,): the joint ratio p_target / q_draft of the first i tokens,
    capped at 1 after each. left: probabilities, shape (n, ids of the target): the residual at the
    next drafted token. chances: fractions, shape (n,): of keeping at least the first i tokens, for
    i from 1.
    """

    shares: mx.array
    left: mx.array
    chances: mx.array


def weigh(target: Weights, drafted: mx.array, q_draft: mx.array) -> Block:
    """Block verification of a line before any uniform number is used. Shapes as for judge."""
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
    """Target weight of each drafted token, shape (n, 1), and q_draft of the target's ids."""
    if before.ids.shape[-1] == q_draft.shape[-1]:  # each token is at its own index
        return mx.take_along_axis(before.weights, drafted[:, None], axis=-1), q_draft
    is_drafted = before.ids == drafted[:, None]
    weight_of_token = mx.where(is_drafted, before.weights, 0).sum(-1, keepdims=True)
    return weight_of_token, mx.take_along_axis(q_draft, before.ids, axis=-1)


def _shares(p_of_token: mx.array, q_of_token: mx.array) -> mx.array:
    """share[i] = min(1, share[i - 1] p_target / q_draft), with share[0] = 1; shape (n + 1,)."""
    ratios = ratio(p_of_token, q_of_token)
    shares = [mx.array([CERTAIN], dtype=mx.int64)]
    for factor, shift in zip(*(mx.split(part, len(part)) for part in ratios), strict=True):
        shares.append(capped(shares[-1], factor, shift))
    return mx.concatenate(shares)


def _passing(left: mx.array, shares: mx.array) -> mx.array:
    """Chance of each proper prefix: left / (left + 1 - share), 1 for 0 / 0.

    It counts only if every longer prefix fails, whose probability is that denominator: so 30
    fractional bits are enough for both.
    """
    missing = (CERTAIN - shares) << (PROBABILITY_BITS - FRACTION_BITS)
    of_left, whole = left >> _SPARE, (left + missing) >> _SPARE
    chances = (of_left << FRACTION_BITS) // mx.maximum(whole, 1)
    return mx.where(whole == 0, CERTAIN, chances)


def _longest(passes: mx.array) -> mx.array:
    """Length of the longest prefix that passes, even if shorter ones do not."""
    return mx.where(passes, mx.arange(1, len(passes) + 1), 0).max()


def _after(target: Weights, accepted: mx.array, left: mx.array, number: mx.array) -> mx.array:
    """Token drawn from the residual, or from p_target if all tokens are accepted."""
    count = len(left)
    rest = left[mx.minimum(accepted, count - 1)]
    is_whole = (accepted == count) | (rest.sum() == 0)
    weights = mx.where(is_whole, target.weights[accepted], rest)
    return draw(target.ids[accepted][None], weights[None], number)[0]


class SampledContext(Protocol):
    """Passes of a context whose logits stay on its device, as MlxContext describes them.

    A head's prepares no pass, as its next draft reads what the model passes until then, and no head
    reads a head.
    """

    def growing(self, count: int) -> AbstractContextManager[None]: ...

    def logits(self, tokens: mx.array, n_logits: int) -> mx.array: ...

    def passed(self, tokens: Sequence[int]) -> None: ...

    def logits_of(self, token: int) -> mx.array:
        return self.logits(mx.array([token]), 1)

    def foresee(self, token: mx.array) -> None:
        del token

    @property
    def unread(self) -> Sequence[mx.array]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class MlxRow:
    """A q_draft: fixed-point probabilities, shape (n_vocab,)."""

    array: mx.array

    def probabilities(self) -> NDArray[np.float64]:
        weights = np.array(self.array).astype(np.float64)
        return weights / weights.sum()


class MlxSampling:
    keeps_rows = False

    def __init__(self, context: SampledContext) -> None:
        self._context = context

    def draft(
        self,
        tokens: Sequence[int],
        warping: Warping,
        uniforms: NDArray[np.float64],
        n_vocab: int,
    ) -> Drawn:
        """Draw tokens; each enters the next pass as an array, so that nothing waits for its id."""
        context, numbers = self._context, fraction(uniforms)
        drawn: list[mx.array] = []
        rows: list[mx.array] = []
        sound: list[mx.array] = []
        with context.growing(len(tokens) + len(uniforms) - 1):
            pending = mx.array(list(tokens))
            for place in range(len(uniforms)):
                logits = context.logits(pending, 1)[:, :n_vocab]
                distribution = warp(logits, warping)
                pending = draw(distribution.ids, distribution.weights, numbers[place : place + 1])
                drawn.append(pending)
                rows.append(distribution.dense(logits.shape[-1]))
                sound.append(distribution.sound)
                mx.async_eval(pending, rows[-1], distribution.sound)
            together = mx.concatenate(drawn)
            of_drawn = mx.take_along_axis(mx.concatenate(rows), together[:, None], axis=-1)[:, 0]
            usable = mx.all(mx.concatenate(sound))
            mx.eval(together, of_drawn, usable, *context.unread)
        ids = cast("list[int]", together.tolist())
        context.passed([*tokens, *ids[:-1]])
        _check(usable)
        probabilities = np.ldexp(np.array(of_drawn), -PROBABILITY_BITS).tolist()
        return Drawn(tuple(ids), tuple(probabilities), tuple(MlxRow(row[0]) for row in rows))

    def verify(
        self,
        tokens: Sequence[int],
        drafted: Sequence[int],
        rows: Sequence[DeviceRow] | None,
        warping: Warping,
        uniforms: NDArray[np.float64],
        listener: Listener | None = None,
    ) -> tuple[int, int]:
        context, together = self._context, [*tokens, *drafted]
        with context.growing(len(together)):
            if len(together) == 1:
                logits = context.logits_of(together[0])
            else:
                logits = context.logits(mx.array(together), 1 + len(drafted))
            q_draft = _stacked(rows, logits.shape[-1]) if rows else None
            chosen = mx.array(list(drafted), dtype=mx.int32)
            accepted, next_token, usable = judge(warp(logits, warping), chosen, q_draft, uniforms)
            likeliest = [mx.argmax(logits[-1 - len(drafted) :], axis=-1)] if listener else []
            wanted = accepted, next_token, usable, *likeliest, *context.unread
            mx.async_eval(*wanted)
            if not drafted:
                context.foresee(next_token[None])
            mx.eval(*wanted)
        context.passed(together)
        _check(usable)
        if listener is not None:
            listener(np.array(likeliest[0]).astype(np.int64))
        return cast("int", accepted.item()), cast("int", next_token.item())


def _stacked(rows: Sequence[DeviceRow], n_vocab: int) -> mx.array:
    """Drafter rows padded or cut to the target's vocabulary; a drafter never draws other tokens."""
    arrays = mx.stack([cast("MlxRow", row).array for row in rows])
    missing = n_vocab - arrays.shape[-1]
    return mx.pad(arrays, [(0, 0), (0, missing)]) if missing > 0 else arrays[:, :n_vocab]


def _check(usable: mx.array) -> None:
    if not usable.item():
        raise ModelError(
            "the model gave no usable scores", "not a number among them", "Its file may be damaged."
        )
