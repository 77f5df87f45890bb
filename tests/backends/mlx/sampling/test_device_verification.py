"""Verdicts of the device: those of the rules in float64, and its numbers within their bounds."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from backends.base import Warping
from backends.mlx import device_sampling as on_device
from backends.mlx.device_warping import (
    FRACTION_BITS,
    PROBABILITY_BITS,
    Weights,
    draw,
    fraction,
    warp,
)

ROUNDING = 1e-6
"""How near to a border a number may decide otherwise in float64."""

ROWS = 2.0**-29
"""What sums of rows that are not quite 1 move a product or a quotient of two of them."""

RATIO, FRACTION = ROWS + 2.0**-28, 2.0**-31
HEAD, SMALLEST = 2.0**-28, 2.0**-54
"""The bounds of backends.mlx.device_warping."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A drafted line with its rows on the device, and the same rows dense in float64."""

    target: Weights
    q_draft: mx.array
    tokens: NDArray[np.int32]
    uniforms: Floats

    @property
    def drafted(self) -> mx.array:
        return mx.array(self.tokens)

    @property
    def p(self) -> Floats:
        weights = np.zeros((len(self.tokens) + 1, self.q_draft.shape[-1]))
        np.put_along_axis(weights, np.array(self.target.ids), np.array(self.target.weights), -1)
        return weights / weights.sum(-1, keepdims=True)

    @property
    def q(self) -> Floats:
        weights = np.array(self.q_draft).astype(np.float64)
        return weights / weights.sum(-1, keepdims=True)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    """Flat rows and steep ones, with zeros and without; the drafter near the target or far."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    length, n_vocab = draw(st.integers(1, 7)), draw(st.sampled_from([2, 6, 200, 3000]))
    spread, distance = draw(st.sampled_from([0.01, 1.5, 6.0])), draw(st.sampled_from([0.0, 0.3, 2]))
    logits = generator.normal(scale=spread, size=(length + 1, n_vocab)).astype(np.float32)
    near = logits[:-1] + generator.normal(scale=distance, size=(length, n_vocab))
    target = warp(mx.array(logits), kept(draw(st.sampled_from([0, 2, 40]))))
    drafter = warp(mx.array(near.astype(np.float32)), kept(draw(st.sampled_from([0, 2, 40]))))
    q_draft = drafter.dense(n_vocab)
    laws = np.array(q_draft) / np.array(q_draft).sum(-1, keepdims=True)
    tokens = [
        drawn(law, number) for law, number in zip(laws, generator.random(length), strict=True)
    ]
    return Line(target, q_draft, np.array(tokens, np.int32), 1.0 - generator.random(length + 1))


def kept(top_k: int) -> Warping:
    return Warping(1.0, top_k, 0.98 if top_k == 40 else 1.0, 0.0)


def drawn(law: Floats, number: float) -> int:
    cumulative = law.cumsum()
    return int(cumulative.searchsorted(number * cumulative[-1]))


def next_share(line: Line, i: int, share: float) -> float:
    return min(1.0, share * line.p[i, line.tokens[i]] / line.q[i, line.tokens[i]])


def left_after(line: Line, i: int, share: float) -> Floats:
    return np.maximum(share * line.p[i] - line.q[i], 0.0)


def verdict(line: Line) -> tuple[int, int] | None:
    """Sun et al. 2025, algorithm 2, in float64; None where a number is too near a border."""
    count, shares = len(line.tokens), [1.0]
    for i in range(count):
        shares.append(next_share(line, i, shares[-1]))
    accepted, law = count, line.p[-1]
    chance, is_clear = shares[-1], True
    while not line.uniforms[accepted - 1] <= chance:
        is_clear = is_clear and line.uniforms[accepted - 1] - chance > ROUNDING
        accepted -= 1
        law = left_after(line, accepted, shares[accepted])
        if accepted == 0:
            break
        whole = law.sum() + 1.0 - shares[accepted]
        is_clear = is_clear and whole > ROUNDING
        chance = law.sum() / max(whole, ROUNDING)
    if accepted > 0:
        is_clear = is_clear and chance - line.uniforms[accepted - 1] > ROUNDING
    borders = law.cumsum() / law.sum()
    is_clear = is_clear and np.abs(borders - line.uniforms[-1]).min() > ROUNDING
    return (accepted, drawn(law, line.uniforms[-1])) if is_clear else None


common = settings(max_examples=100)


@common
@given(lines())
def test_verdicts_are_those_of_the_rule_in_float64(line: Line) -> None:
    expected = verdict(line)
    assume(expected is not None)
    found = on_device.judge(line.target, line.drafted, line.q_draft, line.uniforms)
    assert (found[0].item(), found[1].item()) == expected
    assert found[2].item()


@common
@given(lines())
def test_each_number_is_within_its_bound_of_that_in_float64(line: Line) -> None:
    """Each from those before it on the device: how they add up is proved with the law."""
    block = on_device.weigh(line.target, line.drafted, line.q_draft)
    shares = np.ldexp(np.array(block.shares).astype(np.float64), -FRACTION_BITS)
    chances = np.ldexp(np.array(block.chances).astype(np.float64), -FRACTION_BITS)
    left = np.zeros(line.q.shape)
    np.put_along_axis(left, np.array(line.target.ids[:-1]), np.array(block.left), -1)
    left = np.ldexp(left, -PROBABILITY_BITS)
    assert shares[0] == 1.0
    assert chances[-1] == shares[-1]
    for i, share in enumerate(shares[:-1]):
        expected = next_share(line, i, share)
        assert abs(shares[i + 1] - expected) <= RATIO * expected + FRACTION
        rest = left_after(line, i, share)
        of_rows = ROWS * (share * line.p[i] + line.q[i])
        assert (np.abs(left[i] - rest) <= of_rows + 2.0 * FRACTION * line.p[i] + SMALLEST).all()
        if i > 0 and share < 1.0:
            total = rest.sum() + 1.0 - share
            gap = abs(chances[i - 1] - rest.sum() / total) * total
            assert gap <= ROWS + HEAD


@common
@given(lines())
def test_a_token_is_emitted_that_the_target_allows(line: Line) -> None:
    """At the ends of the range of uniform numbers too."""
    for edge in (2.0**-53, 1.0):
        numbers = np.full(len(line.uniforms), edge)
        accepted, next_token, _ = on_device.judge(line.target, line.drafted, line.q_draft, numbers)
        emitted = [*line.tokens[: int(accepted)], int(next_token)]
        assert all(line.p[i, token] > 0.0 for i, token in enumerate(emitted))


@pytest.mark.parametrize("number", [2.0**-53, 0.5, 1.0])
def test_all_of_what_the_target_itself_drafted_stands(number: float) -> None:
    logits = np.random.default_rng(0).normal(size=(5, 30)).astype(np.float32)
    target = warp(mx.array(logits), kept(0))
    tokens, numbers = mx.array([3, 1, 4, 1]), np.full(5, number)
    assert on_device.judge(target, tokens, target.dense(30)[:4], numbers)[0].item() == 4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_point_masses_stand_while_the_target_draws_them(temperature: float) -> None:
    logits = np.random.default_rng(1).normal(scale=3.0, size=(4, 30)).astype(np.float32)
    target = warp(mx.array(logits), Warping(temperature, 0, 1.0, 0.0))
    numbers = 1.0 - np.random.default_rng(2).random(4)
    own = np.array(draw(target.ids, target.weights, fraction(numbers)))
    for wrong_at in range(4):
        tokens = own[:3].copy()
        tokens[wrong_at:] = (tokens[wrong_at:] + 1) % 30
        accepted, next_token, _ = on_device.judge(target, mx.array(tokens), None, numbers)
        assert (accepted.item(), next_token.item()) == (wrong_at, own[wrong_at])


@pytest.mark.parametrize("is_drawn", [False, True])
@pytest.mark.parametrize(("drafted", "usable"), [(0, True), (1, False)])
def test_scores_past_a_token_that_is_ruled_out_are_not_looked_at(
    drafted: int, usable: bool, is_drawn: bool
) -> None:
    target = warp(mx.array([[0.0, 9.0], [0.0, np.nan]]), Warping(0.0, 0, 1.0, 0.0))
    q_draft = warp(mx.zeros((1, 2)), kept(0)).dense(2) if is_drawn else None
    found = on_device.judge(target, mx.array([drafted]), q_draft, np.array([0.5, 0.5]))
    assert found[0].item() == drafted
    assert found[2].item() is usable
