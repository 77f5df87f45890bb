"""Trees in llama.cpp have the bits of lines, where rows lie in the cache as theirs would."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends.base import Context, Model, ModelError
from tests.fixtures.trees import largest_difference

PROMPT = [504, 2210, 282, 4649, 314, 260, 3575, 30]
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


@pytest.mark.processor("passes of other widths have the same bits")
@pytest.mark.parametrize("ends", [(), (1, 3), (2, 4, 5), (1, 2, 3, 4, 5)])
def test_a_tree_of_the_demo_model_gives_the_bits_of_its_lines(
    demo_pair: tuple[Context, Context], ends: Sequence[int]
):
    assert largest_difference(*demo_pair, TOKENS, FORK, ends) == 0.0


@pytest.mark.processor("passes of other widths have the same bits")
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


def test_what_was_kept_can_be_saved_and_restored(demo_pair: tuple[Context, Context]):
    context, other = demo_pair
    context.forward_tree(TOKENS, FORK)
    context.commit([0, 2, 5])
    state, tokens = context.save(), list(context.tokens)
    other.restore(tokens, state)
    context.truncate(0)
    context.restore(tokens, state)
    assert np.array_equal(context.forward([30], 1), other.forward([30], 1))


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


def test_growth_past_a_limit_or_of_unknown_tokens_drops_the_tree(demo: Model):
    """And the context goes on as if there had been none."""
    context = demo.open(64)
    context.forward(PROMPT[:-1], 0)
    held = context.forward(PROMPT[-1:], 1).copy()
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
