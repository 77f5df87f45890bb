"""Measuring costs in a chat's own context leaves it as it was, on each engine."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from backends.base import Model
from decoding.estimation import calibration
from decoding.estimation.calibration import calibrate_held
from decoding.estimation.cost import Measured

CHAT = [5, 6, 7, 8, 9, 10, 11] * 6
KNOWN = Measured({1: 0.01, 2: 0.02, 4: 0.03, 8: 0.04})


def check(model: Model) -> None:
    """What follows is as it would be had nothing been measured, to rounding."""
    context, empty, other = model.open(128), model.open(64), model.open(128)
    for one in (context, other):
        one.forward(CHAT, 1)
    found = calibrate_held(context, empty, KNOWN, CHAT)
    assert found is not None
    assert found.keys() == {1, 2, 4, 8}
    assert context.tokens == CHAT
    after, expected = (one.forward([5, 6], 2).copy() for one in (context, other))
    np.testing.assert_allclose(after, expected, atol=1e-3)
    for one in (context, empty, other):
        one.close()


@pytest.fixture(autouse=True)
def _agreeing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "AGREEING", float("inf"))


def test_with_a_running_state(hybrid: Model) -> None:
    check(hybrid)


@pytest.mark.parametrize("kind", ["plain", "sliding", "hybrid"])
def test_with_mlx(small_mlx: Callable[..., Path], kind: str) -> None:
    mlx = pytest.importorskip("backends.mlx", reason="MLX is not installed")
    model = mlx.load(small_mlx(kind))
    check(model)
    model.close()
