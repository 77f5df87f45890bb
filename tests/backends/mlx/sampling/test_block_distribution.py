"""What block verification on the device emits has the target's law, by enumeration of every draft.

The device's own numbers weigh the outcomes: chances, remainders and the choice of the longest head.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from backends.base import Warping
from backends.mlx import device_sampling as device_verification
from backends.mlx.device_sampling import Block
from backends.mlx.device_warping import FRACTION_BITS, Weights, times, warp

N_VOCAB = 3
BOUND = 2.0**-26
"""Total variation that rounding may cause for each drafted token."""

CASES = [(1, range(70)), (2, range(70)), (3, range(70))]
"""Lengths of drafts, and seeds."""

FEW = [(2, range(10))]
FAR = 1e4
"""In units of that bound, what no wrong rule stays below: 1.5e-4 for each drafted token."""

Floats = NDArray[np.float64]
Weigh = Callable[[Weights, mx.array, mx.array], Block]
Longest = Callable[[mx.array], mx.array]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A target and a drafter that answer every prefix with a row, prefixes in order of length."""

    length: int
    target: Weights
    q_draft: mx.array

    def law(self) -> Floats:
        """The target's law of the next tokens, one more than are drafted; one axis for each."""
        return joint(np.array(self.target.dense(N_VOCAB)), self.length + 1)

    def law_of_drafts(self) -> Floats:
        return joint(np.array(self.q_draft), self.length)


def joint(rows: NDArray[np.int64], length: int) -> Floats:
    """The law of so many tokens from the row after each prefix."""
    law, start = np.ones(1), 0
    for depth in range(length):
        count = N_VOCAB**depth
        after = rows[start : start + count].astype(np.float64)
        law = (law[:, None] * after / after.sum(-1, keepdims=True)).ravel()
        start += count
    return law.reshape((N_VOCAB,) * length)


def random_case(seed: int, length: int) -> Case:
    """Most have zeros, in the target's rows, the drafter's or both; in every seventh p = q."""
    generator = np.random.default_rng([seed, length])
    count = sum(N_VOCAB**depth for depth in range(length + 1))
    logits = generator.normal(scale=1.5, size=(2, count, N_VOCAB)).astype(np.float32)
    top_k = [(0, 0), (2, 0), (0, 2), (2, 2), (0, 0), (0, 1)][seed % 6]
    target = warp(mx.array(logits[0]), Warping(1.0, top_k[0], 1.0, 0.0))
    drafter = warp(mx.array(logits[1]), Warping(1.0, top_k[1], 1.0, 0.0))
    return Case(length, target, (target if seed % 7 == 0 else drafter).dense(N_VOCAB))


def emitted(case: Case, weigh: Weigh, longest: Longest) -> Floats:
    """The law of the next tokens where drafts are judged, what is missing drawn from the target."""
    drafts = np.array([*product(range(N_VOCAB), repeat=case.length)])
    chances, after = outcomes(case, drafts, weigh)
    of_drafts, law = case.law_of_drafts().ravel(), case.law()
    found = np.zeros_like(law)
    for passes in product([False, True], repeat=case.length):
        kept = cast("int", longest(mx.array(passes)).item())
        of_these = of_drafts * np.where(passes, chances, 1.0 - chances).prod(-1)
        each_head = (N_VOCAB**kept, N_VOCAB ** (case.length - kept), N_VOCAB)
        heads = (of_these[:, None] * after[:, kept]).reshape(each_head).sum(1)
        ends = law.reshape(*heads.shape, -1)
        total = ends.sum(-1, keepdims=True)
        found += (heads[..., None] * ends / np.where(total > 0.0, total, 1.0)).reshape(law.shape)
    return found


def outcomes(case: Case, drafts: NDArray[np.int64], weigh: Weigh) -> tuple[Floats, Floats]:
    """Of each draft: the chance of each head, and the law of the token after each head."""
    places = mx.array(rows_of(drafts))
    ids, weights = case.target.ids[places], case.target.weights[places]
    sound = case.target.sound[places]

    def numbers(*one: mx.array) -> tuple[mx.array, mx.array]:
        block = weigh(Weights(*one[:3]), *one[3:])
        return block.chances, block.left

    tokens, q_draft = mx.array(drafts.astype(np.int32)), case.q_draft[places[:, :-1]]
    chances, left = mx.vmap(numbers)(ids, weights, sound, tokens, q_draft)
    rest = np.array(mx.concatenate([left, weights[:, -1:]], axis=1)).astype(np.float64)
    nothing = rest.sum(-1, keepdims=True) == 0.0
    rest = np.where(nothing, np.array(weights).astype(np.float64), rest)
    after = np.zeros((*rest.shape[:2], N_VOCAB))
    np.put_along_axis(after, np.array(ids), rest / rest.sum(-1, keepdims=True), axis=-1)
    return np.ldexp(np.array(chances).astype(np.float64), -FRACTION_BITS), after


def rows_of(drafts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the rows after the history and after each drafted token are."""
    places = [np.zeros(len(drafts), dtype=np.int64)]
    for tokens in drafts.T:
        places.append(places[-1] * N_VOCAB + tokens + 1)
    return np.stack(places, axis=-1)


def farthest(
    weigh: Weigh = device_verification.weigh,
    longest: Longest = device_verification._longest,
    cases: Sequence[tuple[int, range]] = CASES,
) -> float:
    """The largest total variation of all cases, in units of what rounding may cause."""
    distances = []
    for length, seeds in cases:
        for seed in seeds:
            case = random_case(seed, length)
            gap = np.abs(emitted(case, weigh, longest) - case.law()).sum() / 2
            distances.append(gap / (length * BOUND))
    return max(distances)


def test_what_is_emitted_has_the_law_of_the_target() -> None:
    """In 210 cases, within 3 * 2**-26, which is 5e-8."""
    assert farthest() < 1.0


def test_control_the_same_test_rejects_stopping_at_the_first_failure() -> None:
    def first_failure(passes: mx.array) -> mx.array:
        return mx.cumprod(passes.astype(mx.int32)).sum()

    assert farthest(longest=first_failure, cases=FEW) > FAR


def last_as_others(target: Weights, drafted: mx.array, q_draft: mx.array) -> Block:
    """The formula of the inner tokens at the last one too, with the last q_draft."""
    right = device_verification.weigh(target, drafted, q_draft)
    covered = mx.take_along_axis(q_draft[-1:], target.ids[-1:], axis=-1)
    left = mx.maximum(times(target.probabilities()[-1:], right.shares[-1:, None]) - covered, 0)
    last = device_verification._passing(left.sum(-1), right.shares[-1:])
    return replace(right, chances=mx.concatenate([right.chances[:-1], last]))


def without_share(target: Weights, drafted: mx.array, q_draft: mx.array) -> Block:
    """After a head of the draft, what is left of p_target as it stands."""
    right = device_verification.weigh(target, drafted, q_draft)
    covered = mx.take_along_axis(q_draft, target.ids[:-1], axis=-1)
    return replace(right, left=mx.maximum(target.probabilities()[:-1] - covered, 0))


def whole_target(target: Weights, drafted: mx.array, q_draft: mx.array) -> Block:
    """After a head of the draft, p_target whole."""
    right = device_verification.weigh(target, drafted, q_draft)
    return replace(right, left=mx.zeros_like(right.left))


def half_as_often(target: Weights, drafted: mx.array, q_draft: mx.array) -> Block:
    right = device_verification.weigh(target, drafted, q_draft)
    return replace(right, chances=right.chances >> 1)


@pytest.mark.parametrize("wrong", [last_as_others, without_share, whole_target, half_as_often])
def test_control_the_same_test_rejects_a_wrong_rule(wrong: Weigh) -> None:
    assert farthest(wrong, cases=FEW) > FAR
