"""Verdicts of the device: those of the NumPy reference, and together the target's own law."""

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from backends.base import Warping
from backends.mlx import verification as on_device
from backends.mlx.warping import Weights, warp
from decoding import verification
from decoding.draft import Draft
from decoding.sampling import Distribution, from_row, uniform

WARPING = Warping(1.0, 0, 1.0, 0.0)
ROUNDING = 1e-6


def random_rows(seed: int, count: int, n_vocab: int, top_k: int = 0) -> Weights:
    logits = np.random.default_rng(seed).normal(scale=1.5, size=(count, n_vocab))
    return warp(mx.array(logits.astype(np.float32)), Warping(1.0, top_k, 1.0, 0.0))


def laws_of(rows: NDArray[np.float32]) -> list[Distribution]:
    exact = rows.astype(np.float64)
    return [from_row(row / row.sum()) for row in exact]


class Watched:
    """A source of given numbers that remembers how many were taken."""

    def __init__(self, numbers: NDArray[np.float64]) -> None:
        self._numbers = iter(1.0 - numbers)
        self.taken = 0

    def random(self) -> float:
        self.taken += 1
        return next(self._numbers)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    length=st.integers(0, 4),
    n_vocab=st.sampled_from([3, 6, 200]),
    top_k=st.sampled_from([0, 2, 40]),
    is_drawn=st.booleans(),
)
def test_verdicts_are_those_of_the_reference(
    seed: int, length: int, n_vocab: int, top_k: int, is_drawn: bool
) -> None:
    generator = np.random.default_rng(seed)
    target = random_rows(seed, length + 1, n_vocab, top_k)
    q_draft = random_rows(seed + 1, max(length, 1), n_vocab, top_k).dense(n_vocab)[:length]
    p_laws = laws_of(np.array(target.dense(n_vocab)))
    q_laws = laws_of(np.array(q_draft))
    tokens = tuple(law.draw(uniform(generator)) for law in q_laws)
    uniforms = 1.0 - generator.random(length + 1)
    draft = Draft(tokens, "any", (0.5,) * length, tuple(q_laws) if is_drawn else None)
    watched = Watched(uniforms)
    expected = verification.verify(p_laws, draft, cast(np.random.Generator, watched))
    if _is_near_a_border(p_laws, draft, uniforms, expected.accepted):
        return
    accepted, next_token, sound = on_device.judge(
        target,
        mx.array(list(tokens), dtype=mx.int32),
        q_draft if is_drawn and length else None,
        uniforms,
    )
    assert (accepted.item(), next_token.item()) == (expected.accepted, expected.next_token)
    assert sound.item()
    drawn = is_drawn and length > 0
    assert watched.taken == min(expected.accepted + (2 if drawn else 1), length + 1)


def _is_near_a_border(
    p_laws: list[Distribution], draft: Draft, uniforms: NDArray[np.float64], accepted: int
) -> bool:
    """Whether a number that decides lies within float32's rounding of where it would not."""
    for i, number in enumerate(uniforms[: accepted + 2]):
        law = p_laws[min(i, accepted)]
        borders = [law.probabilities.cumsum()]
        if draft.distributions is not None and i < len(draft):
            q_draft = draft.distributions[i]
            token = draft.tokens[i]
            borders.append(np.array([p_laws[i].of(token) / q_draft.of(token)]))
        if draft.distributions is not None and accepted < len(draft):
            rest = verification.residual(p_laws[accepted], draft.distributions[accepted])
            borders.append(rest.probabilities.cumsum())
        if min(np.abs(border - number).min() for border in borders) < ROUNDING:
            return True
    return False


def emitted_law(seed: int, n_vocab: int, top_k: int) -> tuple[float, NDArray[np.float64]]:
    """How far what a draft of one token emits first is from p_target, over every uniform.

    The numbers at which a verdict changes are found by bisection of the verdict itself.
    """
    target = random_rows(seed, 2, n_vocab, top_k)
    q_draft = random_rows(seed + 1, 1, n_vocab, top_k).dense(n_vocab)
    p_target = np.array(target.dense(n_vocab))[0].astype(np.float64)
    q_law = np.array(q_draft)[0].astype(np.float64)
    emitted = np.zeros(n_vocab)

    def verdict(token: int, first: float, second: float) -> tuple[int, int]:
        drafted = mx.array([token], dtype=mx.int32)
        numbers = np.array([first, second])
        accepted, next_token, _ = on_device.judge(target, drafted, q_draft, numbers)
        return cast(int, accepted.item()), cast(int, next_token.item())

    for token in np.flatnonzero(q_law):
        edge = _last(lambda number, one=int(token): verdict(one, number, 0.5)[0] == 1)
        emitted[token] += q_law[token] * edge
        if edge == 1.0:
            continue
        below = 0.0
        for other in range(n_vocab):
            upper = _last(
                lambda number, one=int(token), most=other: verdict(one, 1.0, number)[1] <= most
            )
            emitted[other] += q_law[token] * (1.0 - edge) * max(upper - below, 0.0)
            below = max(upper, below)
    return float(np.abs(emitted - p_target).sum() / 2), emitted


def _last(holds: Callable[[float], bool]) -> float:
    """The largest number in (0, 1] at which it holds, where it holds below too."""
    if holds(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@pytest.mark.parametrize(("seed", "top_k"), [(0, 0), (1, 0), (2, 3)])
def test_what_is_emitted_has_the_law_of_the_target(seed: int, top_k: int) -> None:
    distance, emitted = emitted_law(seed, 5, top_k)
    assert emitted.sum() == pytest.approx(1.0, abs=1e-6)
    assert distance < 1e-6


def test_control_the_same_test_rejects_resampling_from_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def whole(
        target: Weights, accepted: mx.array, q_draft: mx.array, uniforms: NDArray[np.float64]
    ) -> mx.array:
        return right(target, accepted, mx.zeros(q_draft.shape), uniforms)

    right = on_device._after
    monkeypatch.setattr(on_device, "_after", whole)
    assert emitted_law(0, 5, 0)[0] > 0.01


def test_control_the_same_test_rejects_accepting_half_as_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = on_device._acceptable

    def half(
        target: Weights, drafted: mx.array, q_draft: mx.array, uniforms: NDArray[np.float64]
    ) -> mx.array:
        return right(target, drafted, q_draft, np.minimum(2.0 * uniforms, 1.0))

    monkeypatch.setattr(on_device, "_acceptable", half)
    assert emitted_law(0, 5, 0)[0] > 0.01


def test_scores_past_a_rejection_are_not_looked_at() -> None:
    logits = mx.array([[0.0, 9.0], [0.0, np.nan]])
    for drafted, usable in ((0, True), (1, False)):
        numbers = np.array([0.5, 0.5])
        found = on_device.judge(
            warp(logits, Warping(0.0, 0, 1.0, 0.0)), mx.array([drafted]), None, numbers
        )
        assert found[0].item() == drafted
        assert found[2].item() is usable
