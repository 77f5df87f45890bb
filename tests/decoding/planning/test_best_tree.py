"""The best shape of a tree, against every tree there is."""

from collections.abc import Callable, Iterator
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.trees import TreeShape
from decoding.estimation.cost import CostModel
from decoding.planning.draft_length import NO_TREE, best_length, best_shape

common = settings(max_examples=40)

FLAT = {1: 1.0, 64: 1.3}
LAPTOP = {1: 1.0, 2: 1.9, 4: 2.6, 8: 4.2, 16: 5.7}
PLENTY = 1e9
NODES = 6

Tree = frozenset[tuple[int, ...]]


def trees(nodes: int, deepest: int, ranks: int) -> Iterator[Tree]:
    """Every set of paths by rank that has all parents and elder siblings, none left out."""
    found: set[Tree] = {frozenset()}
    while found:
        yield from found
        found = {
            tree | {child}
            for tree in found
            if len(tree) < nodes
            for parent in [(), *tree]
            if len(parent) < deepest
            for child in [(*parent, sum(other[:-1] == parent for other in tree if other))]
            if child[-1] < ranks
        }


def tokens_and_cost(
    tree: Tree, by_rank: list[float], curve: CostModel, first: float, further: float
) -> tuple[float, float]:
    """A reading for each level, and a further one for each node beside another."""
    expanded = {path[:-1] for path in tree}
    levels = len({len(path) for path in expanded})
    drafting = first * levels + further * (len(expanded) - levels)
    expected = sum(prod(by_rank[rank] for rank in path) for path in tree)
    return expected, drafting + curve.of_draft(len(tree))


def as_paths(shape: TreeShape) -> Tree:
    paths: list[tuple[int, ...]] = []
    for parent, rank in zip(shape.parents, shape.ranks, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), rank))
    return frozenset(paths)


def straight(first: float, further: float) -> Callable[[int], float]:
    return lambda width: first + (width - 1) * further


shares = st.lists(st.integers(1, 50).map(lambda one: one / 100), min_size=1, max_size=3)


@common
@given(
    shares,
    st.lists(st.floats(1.0, 2.0), min_size=NODES, max_size=NODES),
    st.floats(0.0, 0.2),
    st.floats(0.0, 1.0),
    st.floats(0.05, 1.0),
)
def test_no_tree_gains_more(
    by_rank: list[float], curve: list[float], first: float, share: float, affordable: float
) -> None:
    by_rank = sorted(by_rank, reverse=True)
    costs = CostModel({1: 1.0, **dict(enumerate(curve, start=2))})
    further = share * first
    known = {
        tree: tokens_and_cost(tree, by_rank, costs, first, further)
        for tree in trees(NODES, 4, len(by_rank))
    }
    gains = [more - cost for more, cost in known.values() if cost <= affordable]
    found = best_shape(
        by_rank, costs, rate=1.0, affordable=affordable, level_cost=straight(first, further),
        largest_nodes=NODES, largest_depth=4,
    )  # fmt: skip
    assert found.gain == pytest.approx(max([0.0, *gains]), abs=1e-9)
    if found != NO_TREE:
        more, cost = known[as_paths(found.shape)]
        assert cost <= affordable
        assert (more, more - cost) == pytest.approx((found.expected, found.gain))


@common
@given(st.floats(0.02, 0.98).map(lambda one: round(one, 2)), st.floats(1.0, 1.5))
def test_one_child_each_is_a_line_of_the_best_length(share: float, rate: float) -> None:
    costs = CostModel(FLAT)
    line = best_length([share] * 8, costs, rate=rate, affordable=PLENTY, draft_cost=0.05)
    tree = best_shape(
        [share], costs, rate=rate, affordable=PLENTY, level_cost=straight(0.05, 0.05),
        largest_nodes=8, largest_depth=8,
    )  # fmt: skip
    assert tree.shape.nodes == line.length
    assert tree.gain == pytest.approx(line.gain)


def test_a_flat_curve_wants_a_bush_and_a_steep_one_a_line() -> None:
    by_rank = [0.6, 0.15, 0.06]
    bush, line = (
        best_shape(
            by_rank, CostModel(curve), rate=1.0, affordable=PLENTY,
            level_cost=straight(0.02, 0.005), largest_nodes=32, largest_depth=6,
        )
        for curve in (FLAT, LAPTOP)
    )  # fmt: skip
    assert max(bush.shape.ranks) == 2
    assert bush.expected > 2.0
    assert max(line.shape.ranks, default=0) == 0


def test_levels_are_in_order_and_counted() -> None:
    shape = TreeShape((-1, -1, 0, 0, 1), (0, 1, 0, 1, 0))
    assert (shape.nodes, shape.depth, shape.widths) == (5, 2, (1, 2))
    assert (NO_TREE.shape.nodes, NO_TREE.shape.depth) == (0, 0)
