"""Trees in MLX: the rows of each branch, what commit keeps, and layers that have no branches."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("mlx_lm", reason="MLX is not installed")

from backends import mlx
from backends.base import Context, ModelError
from backends.base.parent_array import path_to
from tests.fixtures.mlx_models import N_VOCAB, WINDOW
from tests.fixtures.trees import ends_in, grown, largest_difference, parents_of

ROUNDING = 1e-3
"""As of passes over several tokens; logits are of the order of 10."""


@pytest.fixture(params=["plain", "sliding", "experts"])
def pair(request: pytest.FixtureRequest, small_mlx: Callable[..., Path]) -> tuple[Context, Context]:
    model = mlx.load(small_mlx(request.param))
    return model.open(128), model.open(128)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parents_of(16), st.integers(0, 2 * WINDOW), st.integers(0, 1 << 20), st.data())
def test_each_branch_of_a_tree_is_as_a_line_of_its_own(
    pair: tuple[Context, Context], parents: list[int], held: int, seed: int, data: st.DataObject
):
    """Past a window too, run at once or grown; and so is what follows after one was kept."""
    context, lines = pair
    random = np.random.default_rng(seed)
    tokens = random.integers(3, N_VOCAB, len(parents)).tolist()
    text = random.integers(3, N_VOCAB, held).tolist()
    for one in pair:
        one.truncate(0)
        if text:
            one.forward(text, 0)
    ends = data.draw(ends_in(len(parents)))
    assert largest_difference(context, lines, tokens, parents, ends) < ROUNDING
    path = path_to(data.draw(st.integers(-1, len(parents) - 1)), parents)
    context.commit(path)
    line = [tokens[node] for node in path]
    if line:
        lines.forward(line, 0)
    assert list(context.tokens) == [*text, *line]
    next_token = random.integers(3, N_VOCAB, 1).tolist()
    assert np.abs(context.forward(next_token, 1) - lines.forward(next_token, 1)).max() < ROUNDING


def test_a_node_sees_its_own_branch_alone(pair: tuple[Context, Context]):
    """The same tokens in another shape score otherwise by far more than rounding."""
    context, _ = pair
    context.forward([5, 6, 7], 0)
    line = context.forward_tree([8, 9, 10], [-1, 0, 1])[2].copy()
    fork = context.forward_tree([8, 9, 10], [-1, 0, 0])[2].copy()
    assert np.abs(line - fork).max() > 100 * ROUNDING


def test_a_tree_of_which_nothing_is_kept_leaves_no_trace(pair: tuple[Context, Context]):
    context, lines = pair
    for one in pair:
        one.forward([5, 6, 7], 0)
    expected = lines.forward([8, 9], 2).copy()
    context.forward_tree([10, 11, 12], [-1, -1, 0])
    assert list(context.tokens) == [5, 6, 7]
    assert np.array_equal(context.forward([8, 9], 2), expected)
    context.truncate(3)
    grown(context, [10, 11, 12], [-1, -1, 0], [1, 2])
    context.truncate(3)
    assert np.array_equal(context.forward([8, 9], 2), expected)
    with pytest.raises(AssertionError, match="no tree"):
        context.grow_tree([10], [-1])


def test_growth_past_a_limit_drops_the_tree(small_mlx: Callable[..., Path]):
    context = mlx.load(small_mlx("plain")).open(16)
    expected = context.forward([5, 6, 7, 8], 1).copy()
    for why, tokens, parents in [("branches", [9] * 16, [-1] * 16), ("fit", [9] * 13, [0] * 13)]:
        context.forward_tree([9], [-1])
        with pytest.raises(ModelError, match=why):
            context.grow_tree(tokens, parents)
        assert list(context.tokens) == [5, 6, 7, 8]
    context.truncate(3)
    assert np.abs(context.forward([8], 1) - expected).max() < ROUNDING


def test_a_running_state_has_no_branches(small_mlx: Callable[..., Path]):
    context = mlx.load(small_mlx("hybrid")).open(64)
    assert not context.can_verify_tree
    assert "several branches" in context.tree_refusal
