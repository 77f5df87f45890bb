"""Drafters of trees and of several lines: what they draft, and what they run for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.base.parent_array import depths, path_to
from decoding.drafters.sampled_tree import SampledTree
from decoding.drafters.trees import DynamicTree, TreeShape
from decoding.estimation.cost import TreeSize
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.draft_length import likeliest
from decoding.sampling.distribution import SamplingSettings, warp
from tests.fixtures.branching import (
    MAKERS,
    PROMPT,
    by_temperature,
    dynamic,
    proposed,
    sampled,
)
from tests.fixtures.enumeration import DENSE, N_VOCAB, Prefix
from tests.fixtures.forms import parents_in

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

Open = Callable[..., "FakeContext"]
Table = Callable[..., NDArray[np.float32]]

GREEDY = SamplingSettings(temperature=0.0)
NO_END: frozenset[int] = frozenset()


@pytest.mark.parametrize("name", MAKERS)
@given(
    seed=st.integers(0, 2**32),
    prompt=st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=12),
    n_ctx=st.integers(14, 60),
    drafter_ctx=st.integers(14, 60),
)
@settings(max_examples=20)
def test_greedy_replies_are_those_of_plain_decoding(
    name: str, seed: int, prompt: list[int], n_ctx: int, drafter_ctx: int, table: Table,
    fake_context: Open,
) -> None:  # fmt: skip
    """To the end of either context; each holds its caller to the contract."""
    scores = table(seed, N_VOCAB)
    replies: list[list[int]] = []
    for drafter in (None, MAKERS[name](fake_context(table(seed + 1, N_VOCAB), n_ctx=drafter_ctx))):
        context = fake_context(scores, n_ctx=n_ctx)
        events = generate(context, prompt, GREEDY, Limits(60, NO_END), drafters=always(drafter))
        replies.append([token for one in events if isinstance(one, Step) for token in one.tokens])
        assert list(context.tokens) == [*prompt, *replies[-1]][: context.length]
    assert replies[0] == replies[1]


def test_the_best_of_all_nodes_are_drafted(table: Table, fake_context: Open) -> None:
    """Against the scores of every node there is."""
    for seed in range(20):
        scores = table(seed)
        context = fake_context(scores, n_ctx=64)
        drafter = DynamicTree("dynamic", context, TreeSize(3, 6), n_vocab=6)
        draft = proposed(drafter, DENSE)
        every: dict[Prefix, float] = {(): 1.0}
        waiting: list[Prefix] = [()]
        for path in waiting:
            law = warp(context.row([*PROMPT, *path]), DENSE)
            for token in range(6):
                every[(*path, token)] = every[path] * law.of(token)
                if len(path) < 2:
                    waiting.append((*path, token))
        del every[()]
        found = {
            tuple(draft.tokens[one] for one in path_to(node, parents_in(draft)))
            for node in range(len(draft))
        }
        assert found == set(sorted(every, key=lambda path: -every[path])[:6])


def test_a_level_is_one_pass_and_what_was_said_is_not_read_again(
    table: Table, fake_context: Open
) -> None:
    shape = likeliest([0.5, 0.3], 6, 3)
    context = fake_context(table(5))
    drafter = SampledTree("sampled", context, shape, n_vocab=6)
    draft = proposed(drafter, DENSE)
    parents = parents_in(draft)
    assert (parents, context.forwards) == (shape.parents, [2, *shape.widths[1:]])
    node = parents.index(0)
    history = [*PROMPT, draft.tokens[0], draft.tokens[node], 3]
    drafter.commit(history)
    run = 2 if node in parents else 1
    assert drafter.backlog(history) == 3 - run
    drafter.propose(history, 9)
    assert context.forwards[1 + len(shape.widths[1:])] == 3 - run


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_deeper_or_longer_than_the_limit(
    name: str, table: Table, fake_context: Open
) -> None:
    drafter = MAKERS[name](fake_context(table(5, N_VOCAB)))
    for limit in (0, 1, 2):
        draft = proposed(drafter, DENSE, limit)
        depth = 1 + max(depths(parents_in(draft))) if draft.is_tree else len(draft)
        assert min(limit, 1) <= depth <= limit
        assert len(draft) <= limit or not draft.is_sampled, "whether it fits is known before"


def test_a_plan_is_followed(table: Table, fake_context: Open) -> None:
    line = TreeShape((-1, 0), (0, 0))
    one = TreeShape((-1,), (0,))
    for make in (dynamic, sampled):
        drafter = make(fake_context(table(5, N_VOCAB)))
        assert len(proposed(drafter, DENSE)) == 3 == drafter.largest.nodes
        drafter.plan(line)
        assert len(proposed(drafter, DENSE)) == 2
        drafter.plan(one)
        assert len(proposed(drafter, DENSE)) == 1


def test_what_is_drafted_follows_the_temperature(table: Table, fake_context: Open) -> None:
    """One context serves both ways, and neither leaves it a tree of the other's."""
    drafter = by_temperature(fake_context(table(5, N_VOCAB)))
    for chosen in (GREEDY, DENSE, GREEDY, DENSE, DENSE):
        draft = proposed(drafter, chosen)
        assert len(draft) == 3
        assert draft.is_sampled == (chosen is DENSE)
