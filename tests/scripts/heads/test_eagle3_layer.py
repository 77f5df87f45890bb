"""The layer's gradients against differences, and its passes against each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from scripts.heads.eagle3_layer import (
    Array,
    Pass,
    Shape,
    Weights,
    backward,
    forward,
    guessed_back,
    guessed_states,
)

SHAPE = Shape(heads=4, kv_heads=2, base=100.0, epsilon=1e-5)
WIDTH, HEAD, INNER, TEXTS, LENGTH = 8, 4, 12, 2, 5


@dataclass(frozen=True)
class Case:
    weights: Weights
    embedded: Array
    fused: Array
    wanted: Array


@pytest.fixture
def case() -> Case:
    random = np.random.default_rng(0)

    def some(*shape: int) -> Array:
        return random.normal(size=shape)  # as doubles, so that differences are exact enough

    weights = {
        "attn_q": some(4 * HEAD, 2 * WIDTH),
        "attn_k": some(2 * HEAD, 2 * WIDTH),
        "attn_v": some(2 * HEAD, 2 * WIDTH),
        "attn_output": some(WIDTH, 4 * HEAD),
        "ffn_gate": some(INNER, WIDTH),
        "ffn_up": some(INNER, WIDTH),
        "ffn_down": some(WIDTH, INNER),
    } | {name: some(WIDTH) for name in ("attn_norm", "attn_norm_2", "ffn_norm", "output_norm")}
    rows = (some(TEXTS, LENGTH, WIDTH) for _ in range(3))
    return Case(weights, *rows)


def slope(loss: Callable[[], float], values: Array, place: tuple[int, ...]) -> Any:
    """How the loss changes with a value, but for rounding."""
    held = values[place]
    values[place] = held + 1e-5
    above = loss()
    values[place] = held - 1e-5
    found = (above - loss()) / 2e-5
    values[place] = held
    return pytest.approx(found, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("is_drafted", [False, True])
def test_gradients_are_the_slopes_of_the_output(case: Case, is_drafted: bool) -> None:
    weights = case.weights
    first = forward(weights, SHAPE, case.embedded, case.fused)
    earlier = first.cache if is_drafted else None
    fused = guessed_states(first) if is_drafted else case.fused

    def loss() -> float:
        return float(
            (forward(weights, SHAPE, case.embedded, fused, earlier).output * case.wanted).sum()
        )

    done = forward(weights, SHAPE, case.embedded, fused, earlier)
    found, of_fused = backward(weights, SHAPE, done, case.wanted)
    assert found.keys() == weights.keys()
    random = np.random.default_rng(1)
    places = [(weights[name], found[name]) for name in weights] + [(fused, of_fused)]
    for values, gradient in places:
        for _ in range(4):
            place = tuple(int(random.integers(size)) for size in values.shape)
            assert gradient[place] == slope(loss, values, place)


def test_gradients_flow_back_through_guessed_states(case: Case) -> None:
    """But not through the keys and values of the first pass, which are held here."""
    weights, wanted = case.weights, case.wanted
    first = forward(weights, SHAPE, case.embedded, case.fused)
    held = first.cache

    def second() -> Pass:
        again = forward(weights, SHAPE, case.embedded, case.fused)
        return forward(weights, SHAPE, case.embedded, guessed_states(again), held)

    def loss() -> float:
        return float((second().output * wanted).sum())

    of_second, of_guessed = backward(weights, SHAPE, second(), wanted)
    nothing = np.zeros_like(wanted)
    of_first, of_fused = backward(weights, SHAPE, first, nothing, guessed_back(of_guessed))
    pairs = [(weights["ffn_up"], of_first["ffn_up"] + of_second["ffn_up"]), (case.fused, of_fused)]
    for values, gradient in pairs:
        place = tuple(size // 2 for size in values.shape)
        assert gradient[place] == slope(loss, values, place)


def test_no_position_sees_what_comes_after_it(case: Case) -> None:
    output = forward(case.weights, SHAPE, case.embedded, case.fused).output.copy()
    case.embedded[:, 3:] += 1.0
    changed = forward(case.weights, SHAPE, case.embedded, case.fused).output
    assert np.array_equal(changed[:, :3], output[:, :3])
    assert not np.allclose(changed[:, 3], output[:, 3])
