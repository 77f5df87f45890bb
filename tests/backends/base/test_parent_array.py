"""Shapes of trees: depths, leaves, and what is a path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import ModelError
from backends.base.parent_array import (
    check_branches,
    count_leaves,
    depths,
    is_path,
    is_tree,
    path_to,
)
from tests.fixtures.trees import parents_of

FORK = (-1, 0, 0, 1, -1)


def test_a_fork_has_three_leaves_and_a_line_has_one():
    assert depths(FORK) == [0, 1, 1, 2, 0]
    assert count_leaves(FORK) == 3
    assert count_leaves((-1, 0, 1)) == 1
    assert count_leaves(()) == 0


def test_more_branches_than_a_context_runs_are_refused():
    check_branches(FORK, 3)
    with pytest.raises(ModelError, match="a tree of 3 branches"):
        check_branches(FORK, 2)


def test_a_parent_comes_before_its_children():
    assert is_tree(FORK)
    assert not is_tree((-1, 1))
    assert not is_tree((-2,))


@given(parents_of(12), st.data())
def test_a_path_leaves_out_no_node(parents: list[int], data: st.DataObject):
    path = path_to(data.draw(st.integers(0, len(parents) - 1)), parents)
    assert is_path((), parents)
    assert is_path(path, parents)
    assert not is_path([*path, path[-1]], parents)
    if len(path) > 1:
        assert not is_path(path[1:], parents)
        assert not is_path([path[0], *path[2:]], parents) or len(path) == 2
