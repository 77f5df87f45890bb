"""Trees in both engines: the rows of each branch, what commit keeps, and what is left behind."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.base import Context, ModelError
from backends.base.parent_array import path_to
from tests.backends.contract.conftest import Loaded
from tests.fixtures.trees import ends_in, grown, largest_difference, parents_of

Pair = tuple[Context, Context]
TEXT = [5, 6, 7]


@pytest.fixture
def pair(plain: Loaded) -> Iterator[Pair]:
    with closing(plain.model.open(128)) as context, closing(plain.model.open(128)) as lines:
        yield context, lines


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parents_of(16), st.integers(0, 64), st.integers(0, 1 << 20), st.data())
def test_each_branch_of_a_tree_is_as_a_line_of_its_own(
    plain: Loaded, pair: Pair, parents: list[int], held: int, seed: int, data: st.DataObject
) -> None:
    """Past a window too, run at once or grown; and so is what follows after one was kept."""
    context, lines = pair
    random = np.random.default_rng(seed)
    tokens = random.integers(3, 200, len(parents)).tolist()
    text = random.integers(3, 200, held).tolist()
    for one in pair:
        one.truncate(0)
        if text:
            one.forward(text, 0)
    ends = data.draw(ends_in(len(parents)))
    assert largest_difference(context, lines, tokens, parents, ends) < plain.rounding
    path = path_to(data.draw(st.integers(-1, len(parents) - 1)), parents)
    context.commit(path)
    line = [tokens[node] for node in path]
    if line:
        lines.forward(line, 0)
    assert list(context.tokens) == [*text, *line]
    for token in random.integers(3, 200, 3).tolist():
        assert plain.near(context.forward([token], 1), lines.forward([token], 1))


def test_a_node_sees_its_own_branch_alone(plain: Loaded, pair: Pair) -> None:
    """The same token under another parent scores otherwise, by more than rounding; grown too."""
    context, other = pair
    for one in pair:
        one.forward(TEXT, 0)
    line = context.forward_tree([8, 9, 10], [-1, 0, 1])[2].copy()
    fork = context.forward_tree([8, 9, 10], [-1, 0, 0])[2].copy()
    assert np.abs(line - fork).max() > 10 * plain.rounding
    for one in pair:
        one.forward_tree([8, 9], [-1, -1])
    first, second = context.grow_tree([10], [0]).copy(), other.grow_tree([10], [1])
    assert np.abs(first - second).max() > 10 * plain.rounding


def test_a_tree_of_which_nothing_is_kept_leaves_no_trace(pair: Pair) -> None:
    """Whatever call drops it, at once or grown."""
    context, lines = pair
    for one in pair:
        one.forward(TEXT, 0)
    expected = lines.forward([8, 9], 2).copy()
    for ends in ((), (1, 2)):
        for drop in (lambda: context.truncate(len(TEXT)), context.save, lambda: None):
            grown(context, [10, 11, 12], [-1, -1, 0], ends)
            drop()
            assert list(context.tokens) == TEXT
            assert np.array_equal(context.forward([8, 9], 2), expected)
            context.truncate(len(TEXT))
            with pytest.raises(AssertionError, match="no tree"):
                context.grow_tree([10], [-1])


def test_growth_past_a_limit_drops_the_tree(plain: Loaded) -> None:
    with closing(plain.model.open(16)) as context:
        expected = context.forward([*TEXT, 8], 1).copy()
        for why, tokens, parents in [
            ("branches", [9] * 16, [-1] * 16),
            ("fit", [9] * 13, [0] * 13),
        ]:
            context.forward_tree([9], [-1])
            with pytest.raises(ModelError, match=why):
                context.grow_tree(tokens, parents)
            assert list(context.tokens) == [*TEXT, 8]
        context.truncate(3)
        assert plain.near(context.forward([8], 1), expected)


def test_a_running_state_has_no_branches(context: Context) -> None:
    assert not context.can_verify_tree
    assert "running state" in context.tree_refusal
    assert "several branches" in context.tree_refusal
