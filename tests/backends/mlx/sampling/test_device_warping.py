"""What the device makes of logits is what the NumPy reference makes of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from backends.base import Warping
from backends.mlx.device_warping import PROBABILITY_BITS, draw, fraction, warp
from decoding.sampling import distribution
from decoding.sampling.distribution import Distribution, SamplingSettings

ROUNDING = 1e-6
"""How far float32 may move a probability; a border that near may be crossed."""

SMALLEST = 2.0**-39
"""Of the likeliest token's weight; tokens below may have none on the device."""

common = settings(max_examples=150)


@st.composite
def many_logits(draw: st.DrawFn) -> NDArray[np.float32]:
    """Rows of the same length, spread or full of equal values."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, n_vocab = draw(st.integers(1, 4)), draw(st.integers(2, 700))
    spread = draw(st.sampled_from([0.5, 2.0, 8.0]))
    logits = generator.normal(scale=spread, size=(rows, n_vocab))
    return np.round(logits, draw(st.sampled_from([0, 7]))).astype(np.float32)


settings_of_all_kinds = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([0.0, 0.2, 0.7, 1.0, 1.5]),
    top_k=st.sampled_from([0, 1, 3, 40]),
    top_p=st.sampled_from([0.3, 0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.31]),
)


def warping(one: SamplingSettings) -> Warping:
    return Warping(one.temperature, one.top_k, one.top_p, one.min_p)


def dense(law: Distribution, n_vocab: int) -> NDArray[np.float64]:
    return law.at(np.arange(n_vocab))


def nearest_border(logits: NDArray[np.float32], one: SamplingSettings) -> float:
    """The distance of the nearest token to a border of top-p or min-p, ties of equals apart."""
    ids_kept = distribution.warp(logits, SamplingSettings(1.0, one.top_k, 1.0, 0.0))
    shares = np.sort(ids_kept.probabilities)[::-1]
    distances = [np.abs(shares.cumsum() - one.top_p).min()] if one.top_p < 1.0 else []
    if one.min_p > 0.0:
        distances.append(np.abs(shares / shares[0] - one.min_p).min())
    return float(min(distances, default=1.0))


@common
@given(many_logits(), settings_of_all_kinds)
def test_probabilities_are_those_of_the_reference(
    logits: NDArray[np.float32], one: SamplingSettings
) -> None:
    found = np.array(warp(mx.array(logits), warping(one)).dense(logits.shape[1]))
    for row, probabilities in zip(logits, np.ldexp(found, -PROBABILITY_BITS), strict=True):
        border = nearest_border(row, one)  # equals on the border itself are told apart exactly
        if border < ROUNDING and (border > 0.0 or len(set(row)) == len(row)):
            continue
        expected = dense(distribution.warp(row, one), len(row))
        assert np.abs(probabilities - expected).max() < ROUNDING
        certain = expected > SMALLEST * expected.max()
        assert set(np.flatnonzero(certain)) <= set(np.flatnonzero(probabilities))
        assert set(np.flatnonzero(probabilities)) <= set(np.flatnonzero(expected))


@common
@given(many_logits(), settings_of_all_kinds, st.integers(0, 2**32))
def test_draws_are_those_of_the_reference(
    logits: NDArray[np.float32], one: SamplingSettings, seed: int
) -> None:
    uniforms = 1.0 - np.random.default_rng(seed).random(len(logits))
    laws = warp(mx.array(logits), warping(one))
    tokens = np.array(draw(laws.ids, laws.weights, fraction(uniforms)))
    for row, token, number in zip(logits, tokens, uniforms, strict=True):
        law = distribution.warp(row, one)
        upper = law.probabilities.cumsum()
        if min(nearest_border(row, one), np.abs(upper - number).min()) > ROUNDING:
            assert token == law.draw(number)


@pytest.mark.parametrize("number", [2.0**-53, 0.25, 0.5, 1.0])
def test_no_number_draws_a_token_of_probability_0(number: float) -> None:
    logits = mx.array([[-np.inf, 0.0, -np.inf, 0.0, -np.inf]])
    laws = warp(logits, Warping(1.0, 0, 1.0, 0.0))
    token = int(draw(laws.ids, laws.weights, fraction(np.array([number])))[0])
    assert token == (1 if number <= 0.5 else 3)


def test_the_smallest_number_draws_none_of_weight_0_from_a_small_rest() -> None:
    ids, weights = mx.array([[3, 5, 9]]), mx.array([[0, 7, 1]], dtype=mx.int64)
    assert draw(ids, weights, fraction(np.array([2.0**-32]))).item() == 5


@pytest.mark.parametrize("top_k", [3, 130])
def test_equal_logits_at_the_border_stay_in_the_order_of_ids(top_k: int) -> None:
    """The large vocabulary takes the way through groups; zeros of both signs are equal."""
    logits = np.zeros((1, 40_000), dtype=np.float32)
    logits[0, ::2] = -0.0
    logits[0, [9, 39_999]] = 1.0
    laws = warp(mx.array(logits), Warping(1.0, top_k, 1.0, 0.0))
    others = [token for token in range(top_k) if token != 9][: top_k - 2]
    assert laws.ids.tolist() == [sorted([*others, 9, 39_999])]


def test_sums_over_a_large_vocabulary_are_exact() -> None:
    """In float32 the last borders would be off by more than the probability of a token."""
    n_vocab = 1 << 17
    laws = warp(mx.zeros((1, n_vocab)), Warping(1.0, 0, 1.0, 0.0))
    wanted = np.linspace(0, n_vocab - 1, 10).astype(int)
    uniforms = (wanted + 0.5) / n_vocab
    count = len(wanted)
    ids = mx.broadcast_to(laws.ids, (count, n_vocab))
    weights = mx.broadcast_to(laws.weights, (count, n_vocab))
    assert draw(ids, weights, fraction(uniforms)).tolist() == wanted.tolist()


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.5, 20.0])
@pytest.mark.parametrize("n_vocab", [1, 2, 49_152, 1 << 18])
def test_probabilities_are_those_of_the_weights_to_a_billionth(spread: float, n_vocab: int) -> None:
    logits = np.random.default_rng(n_vocab).normal(scale=spread, size=(2, n_vocab))
    laws = warp(mx.array(logits.astype(np.float32)), Warping(1.0, 0, 1.0, 0.0))
    weights = np.array(laws.weights)
    exact = weights / weights.sum(-1, keepdims=True)
    found = np.ldexp(np.array(laws.probabilities()), -PROBABILITY_BITS)
    assert (np.abs(found - exact) <= 2.0**-30 * exact + 2.0 ** (2 - PROBABILITY_BITS)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_without_a_finite_maximum_are_told(bad: float) -> None:
    logits = np.array([[0.0, 1.0, 2.0], [0.0, bad, 2.0], [-np.inf] * 3], dtype=np.float32)
    for temperature in (0.0, 1.0):
        laws = warp(mx.array(logits), Warping(temperature, 0, 1.0, 0.0))
        assert laws.sound.tolist() == [True, False, False]
