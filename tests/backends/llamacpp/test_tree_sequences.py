"""Trees in llama.cpp: the rows of each branch, what commit keeps, and what is left behind."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context, Model, ModelError
from backends.base.parent_array import path_to
from tests.fixtures.trees import ends_in, grown, largest_difference, parents_of

PROMPT = [504, 2210, 282, 4649, 314, 260, 3575, 30]
ROUNDING = 0.02
"""Rows that lie elsewhere in the cache add up otherwise; 0.013 was the most of 6,000 passes."""


@pytest.fixture(scope="module")
def tiny(tiny_llama: Callable[..., Path]) -> Iterator[Model]:
    model = llamacpp.load(tiny_llama())
    yield model
    model.close()


@pytest.fixture
def pair(tiny: Model) -> Iterator[tuple[Context, Context]]:
    pair = tiny.open(128), tiny.open(128)
    yield pair
    for context in pair:
        context.close()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parents_of(16), st.integers(0, 40), st.integers(0, 1 << 20), st.data())
def test_each_branch_of_a_tree_is_as_a_line_of_its_own(
    pair: tuple[Context, Context], parents: list[int], held: int, seed: int, data: st.DataObject
):
    """Run at once or grown; and so is what follows after one was kept."""
    context, lines = pair
    random = np.random.default_rng(seed)
    tokens = random.integers(3, 200, len(parents)).tolist()
    text = random.integers(3, 200, held).tolist()
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
    for token in random.integers(3, 200, 3).tolist():
        difference = np.abs(context.forward([token], 1) - lines.forward([token], 1)).max()
        assert difference < ROUNDING


FORK = (-1, 0, 0, 1, 1, 2)
TOKENS = (1000, 1001, 1002, 1003, 1004, 1005)


@pytest.fixture
def demo_pair(demo: Model) -> Iterator[tuple[Context, Context]]:
    pair = demo.open(256), demo.open(256)
    for context in pair:
        context.forward(PROMPT, 0)
    yield pair
    for context in pair:
        context.close()


@pytest.mark.parametrize("ends", [(), (1, 3), (2, 4, 5), (1, 2, 3, 4, 5)])
def test_a_tree_of_the_demo_model_gives_the_bits_of_its_lines(
    demo_pair: tuple[Context, Context], ends: Sequence[int]
):
    assert largest_difference(*demo_pair, TOKENS, FORK, ends) == 0.0


def test_the_first_branch_kept_leaves_the_bits_of_a_line(demo_pair: tuple[Context, Context]):
    """Its rows lie in the cache where a line's would."""
    context, lines = demo_pair
    context.forward_tree(TOKENS, FORK)
    context.commit([0, 1])
    lines.forward(TOKENS[:2], 0)
    assert np.array_equal(context.forward([30, 31], 2), lines.forward([30, 31], 2))


def test_another_branch_kept_leaves_the_text_and_nearly_the_scores(
    demo_pair: tuple[Context, Context],
):
    """The cache holds its rows in another order, and quantized sums round otherwise."""
    context, lines = demo_pair
    context.forward_tree(TOKENS, FORK)
    context.commit([0, 2, 5])
    assert list(context.tokens) == [*PROMPT, 1000, 1002, 1005]
    lines.forward([1000, 1002, 1005], 0)
    ours, theirs = context.forward([30], 1)[0].copy(), lines.forward([30], 1)[0]
    assert np.abs(ours - theirs).max() < 0.1 * (theirs.max() - theirs.min())
    assert np.corrcoef(ours, theirs)[0, 1] > 0.999


def test_a_tree_of_which_nothing_is_kept_leaves_no_trace(demo_pair: tuple[Context, Context]):
    context, lines = demo_pair
    expected = lines.forward([30, 31], 2)
    context.forward_tree(TOKENS, FORK)
    assert list(context.tokens) == PROMPT
    assert np.array_equal(context.forward([30, 31], 2), expected)
    context.forward_tree(TOKENS, FORK)
    context.truncate(len(PROMPT))
    assert np.array_equal(context.forward([30, 31], 2), expected)


def test_what_was_kept_can_be_saved_and_restored(demo_pair: tuple[Context, Context]):
    context, other = demo_pair
    context.forward_tree(TOKENS, FORK)
    context.commit([0, 2, 5])
    state, tokens = context.save(), list(context.tokens)
    other.restore(tokens, state)
    context.truncate(0)
    context.restore(tokens, state)
    assert np.array_equal(context.forward([30], 1), other.forward([30], 1))


def test_a_node_that_grew_later_sees_its_own_branch_alone(demo_pair: tuple[Context, Context]):
    """Under another parent the same token scores otherwise, by far more than rounding."""
    context, other = demo_pair
    context.forward_tree([1000, 1001], [-1, -1])
    other.forward_tree([1000, 1001], [-1, -1])
    first, second = context.grow_tree([1002], [0]).copy(), other.grow_tree([1002], [1])
    assert np.abs(first - second).max() > 1.0


def test_after_a_branch_that_grew_was_kept_the_text_goes_on_as_ever(demo: Model):
    """Greedily, from the first child of each level, whose rows lie where a line's would."""
    context, plain = demo.open(256), demo.open(256)
    expected = _greedy(plain, plain.forward(PROMPT, 1)[0], 12)
    row = context.forward(PROMPT, 1)[0]
    text: list[int] = []
    for _ in range(2):
        first, second, *_ = np.argsort(-row).tolist()
        below = context.forward_tree([first], [-1])[0].argmax()
        row = context.grow_tree([int(below), second], [0, -1])[0].copy()
        context.commit([0, 1])
        text += [first, int(below)]
    assert [*text, *_greedy(context, row, 8)] == expected
    for one in (context, plain):
        one.close()


def _greedy(context: Context, row: NDArray[np.float32], count: int) -> list[int]:
    found = [int(row.argmax())]
    while len(found) < count:
        found.append(int(context.forward(found[-1:], 1)[0].argmax()))
    return found


def test_a_tree_that_grew_is_dropped_by_any_other_call(demo_pair: tuple[Context, Context]):
    context, lines = demo_pair
    expected = lines.forward([30, 31], 2)
    for drop in (lambda: context.truncate(len(PROMPT)), context.save, lambda: None):
        grown(context, TOKENS, FORK, (1, 3))
        drop()
        assert list(context.tokens) == PROMPT
        assert np.array_equal(context.forward([30, 31], 2), expected)
        context.truncate(len(PROMPT))
        with pytest.raises(AssertionError, match="no tree"):
            context.grow_tree([5], [-1])


def test_growth_past_a_limit_or_of_unknown_tokens_drops_the_tree(demo: Model):
    """And the context goes on as if there had been none."""
    context = demo.open(64)
    held = context.forward(PROMPT, 1).copy()
    many = context.max_branches
    too_much = [
        ("branches", [5] * many, [-1] * many),
        ("do not fit", [5] * 54, range(2, 56)),
        ("code", [1_000_000], [0]),
    ]
    for why, tokens, parents in too_much:
        context.forward_tree([5, 6, 7], [-1, -1, 1])
        with pytest.raises(ModelError, match=why):
            context.grow_tree(tokens, parents)
        assert list(context.tokens) == PROMPT
        with pytest.raises(AssertionError, match="no tree"):
            context.grow_tree([5], [-1])
    context.truncate(len(PROMPT) - 1)
    assert np.array_equal(context.forward(PROMPT[-1:], 1), held)
    context.close()


def test_a_tree_without_room_or_of_unknown_tokens_changes_nothing(demo: Model):
    context = demo.open(16)
    context.forward(PROMPT, 0)
    with pytest.raises(ModelError, match="do not fit"):
        context.forward_tree([5] * 9, [-1] * 9)
    with pytest.raises(ModelError):
        context.forward_tree([1_000_000], [-1])
    assert list(context.tokens) == PROMPT
    context.forward_tree([5] * 8, [-1] * 8)
    context.commit([7])
    assert list(context.tokens) == [*PROMPT, 5]
    context.close()


def test_a_running_state_has_no_branches(tiny_mamba: Path):
    model = llamacpp.load(tiny_mamba)
    context = model.open(64)
    assert not context.can_verify_tree
    assert "running state" in context.tree_refusal
    model.close()
