"""A pass that was made ready ahead is used or leaves no trace."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import Warping
from backends.mlx.context import MlxContext
from backends.mlx.model import MlxModel

GREEDY = Warping(0.0, 0, 1.0, 0.0)
TEXT = [5, 9, 60, 7, 33, 41, 8]


@pytest.fixture(params=["plain", "sliding"])
def model(request: pytest.FixtureRequest, small_mlx: Callable[..., Path]) -> Iterator[MlxModel]:
    loaded = mlx.load(small_mlx(request.param))
    yield loaded
    loaded.close()


@pytest.fixture
def said(model: MlxModel) -> tuple[MlxContext, int]:
    """A context after a plain step, and the token that the step gave."""
    context = model.open(64)
    context.forward(TEXT[:-1], 0)
    _, token = judged(context, TEXT[-1:])
    return context, token


def judged(
    context: MlxContext, tokens: list[int], drafted: tuple[int, ...] = ()
) -> tuple[int, int]:
    device = context.device_sampling
    assert device is not None
    return device.verify(tokens, drafted, None, GREEDY, np.full(1 + len(drafted), 0.5))


def fresh(model: MlxModel, tokens: list[int]) -> np.ndarray:
    context = model.open(64)
    context.forward(tokens[:-1], 0)
    return context.forward(tokens[-1:], 1).copy()


def test_plain_steps_are_those_of_passes_one_by_one(
    model: MlxModel, said: tuple[MlxContext, int]
) -> None:
    context, token = said
    history = list(TEXT)
    for _ in range(20):
        assert token == fresh(model, history)[0].argmax()
        history.append(token)
        _, token = judged(context, [history[-1]])
    assert context.tokens == history


def test_another_token_is_read_as_if_none_had_been_foreseen(
    model: MlxModel, said: tuple[MlxContext, int]
) -> None:
    context, token = said
    other = (token + 1) % 200
    rows = context.forward([other], 1)
    np.testing.assert_array_equal(rows, fresh(model, [*TEXT, other]))


def test_a_draft_after_a_plain_step_is_judged_as_ever(
    model: MlxModel, said: tuple[MlxContext, int]
) -> None:
    context, token = said
    first = int(fresh(model, [*TEXT, token])[0].argmax())
    second = int(fresh(model, [*TEXT, token, first])[0].argmax())
    wrong = (second + 1) % 200
    assert judged(context, [token], (first, wrong)) == (1, second)
    assert context.length == len(TEXT) + 3


def test_going_back_and_saving_forget_it(model: MlxModel, said: tuple[MlxContext, int]) -> None:
    context, token = said
    state = context.save()
    context.truncate(len(TEXT) - 2)
    rows = context.forward(TEXT[-2:], 1)
    np.testing.assert_allclose(rows, fresh(model, TEXT), atol=1e-5)
    context.restore(TEXT, state)
    np.testing.assert_array_equal(context.forward([token], 1), fresh(model, [*TEXT, token]))
