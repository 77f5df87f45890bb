"""The best length of a draft, over curves that need not rise evenly."""

from collections.abc import Callable, Iterator
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.trees import TreeShape
from decoding.estimation.cost import CostModel, Measured
from decoding.planning.draft_length import (
    NO_TREE,
    NOTHING,
    best_length,
    best_shape,
    break_even,
    predicted_speedup,
)

fewer = settings(max_examples=40)

FLAT_TO_64 = {1: 1.0, 64: 1.3}
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


def tokens_and_cost_of_tree(
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


@fewer
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
    costs = CostModel(Measured({1: 1.0, **dict(enumerate(curve, start=2))}))
    further = share * first
    known = {
        tree: tokens_and_cost_of_tree(tree, by_rank, costs, first, further)
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


@fewer
@given(st.floats(0.02, 0.98).map(lambda one: round(one, 2)), st.floats(1.0, 1.5))
def test_one_child_each_is_a_line_of_the_best_length(share: float, rate: float) -> None:
    costs = CostModel(Measured(FLAT_TO_64))
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
            by_rank, CostModel(Measured(curve)), rate=1.0, affordable=PLENTY,
            level_cost=straight(0.02, 0.005), largest_nodes=32, largest_depth=6,
        )
        for curve in (FLAT_TO_64, LAPTOP)
    )  # fmt: skip
    assert max(bush.shape.ranks) == 2
    assert bush.expected > 2.0
    assert max(line.shape.ranks, default=0) == 0


def test_levels_are_in_order_and_counted() -> None:
    shape = TreeShape((-1, -1, 0, 0, 1), (0, 1, 0, 1, 0))
    assert (shape.nodes, shape.depth, shape.widths) == (5, 2, (1, 2))
    assert (NO_TREE.shape.nodes, NO_TREE.shape.depth) == (0, 0)


common = settings(max_examples=200)

STEPPED = {
    1: 1.0, 2: 1.89, 3: 2.5, 4: 2.3, 5: 3.3, 6: 3.9, 7: 4.4, 8: 4.0, 12: 5.9, 16: 6.1,
}  # fmt: skip
FLAT = {1: 1.0, 16: 1.15}
STEEP = {1: 1.0, 16: 40.0}

chances = st.floats(0.01, 0.99)


def costs(points: dict[int, float], switching: float = 0.0) -> CostModel:
    return CostModel(Measured(points, switching))


@st.composite
def curves(draw: st.DrawFn) -> CostModel:
    """Any curve, rising or not."""
    further = draw(st.lists(st.floats(1.0, 9.0), min_size=1, max_size=15))
    return costs({1: 1.0, **dict(enumerate(further, start=2))})


def tokens_and_cost(
    acceptance: list[float], length: int, curve: CostModel, draft_cost: float
) -> tuple[float, float]:
    """Expected tokens of a step that drafts length, and its cost."""
    expected, together = 1.0, 1.0
    for chance in acceptance[:length]:
        together *= chance
        expected += together
    return expected, 1.0 + curve.of_draft(length) + length * draft_cost


def test_a_longer_draft_pays_where_a_shorter_one_does_not() -> None:
    curve = costs(STEPPED)
    plan = best_length([0.8] * 15, curve, rate=1.0, affordable=PLENTY)
    assert plan.length == 3
    assert plan.gain == pytest.approx(0.8 + 0.64 + 0.512 - 1.3)
    assert best_length([0.8] * 2, curve, rate=1.0, affordable=PLENTY) == NOTHING


def test_the_further_the_better_where_tokens_cost_nothing() -> None:
    assert best_length([0.9] * 15, costs(FLAT), rate=1.0, affordable=PLENTY).length == 15
    assert best_length([0.3] * 15, costs(STEEP), rate=1.0, affordable=PLENTY) == NOTHING


def test_no_draft_is_longer_than_the_curve_or_the_proposal() -> None:
    assert best_length([0.99] * 40, costs(FLAT), rate=1.0, affordable=PLENTY).length == 15
    assert best_length([0.99] * 4, costs(FLAT), rate=1.0, affordable=PLENTY).length == 4
    assert best_length([], costs(FLAT), rate=1.0, affordable=PLENTY) == NOTHING
    assert best_length([0.99], costs({1: 1.0}), rate=1.0, affordable=PLENTY) == NOTHING


@pytest.mark.slow
@common
@given(curves(), st.lists(chances, max_size=20), st.floats(0.0, 0.3))
def test_no_length_has_a_higher_ratio_than_the_best_at_its_own_rate(
    curve: CostModel, acceptance: list[float], draft_cost: float
) -> None:
    """Dinkelbach: at the rate of the best ratio, no length gains anything over that one."""
    lengths = range(min(len(acceptance), curve.largest - 1) + 1)
    ratios = []
    for length in lengths:
        tokens, cost = tokens_and_cost(acceptance, length, curve, draft_cost)
        ratios.append(tokens / cost)
    rate = max(1.0, *ratios)
    plan = best_length(acceptance, curve, rate=rate, affordable=PLENTY, draft_cost=draft_cost)
    assert ratios[plan.length] == pytest.approx(rate)


@common
@given(curves(), st.lists(chances, max_size=20), st.floats(1.0, 9.0), st.floats(0.0, 0.3))
def test_a_rate_out_of_reach_does_not_keep_from_what_pays(
    curve: CostModel, acceptance: list[float], rate: float, draft_cost: float
) -> None:
    """After better times the best ratio within reach is taken, never plain decoding instead."""
    plan = best_length(acceptance, curve, rate=rate, affordable=PLENTY, draft_cost=draft_cost)
    tokens, cost = tokens_and_cost(acceptance, plan.length, curve, draft_cost)
    assert tokens >= cost * (1.0 - 1e-9)
    for length in range(1, min(len(acceptance), curve.largest - 1) + 1):
        other_tokens, other_cost = tokens_and_cost(acceptance, length, curve, draft_cost)
        if other_tokens > other_cost * (1.0 + 1e-9):
            assert plan.length > 0


@common
@given(curves(), st.lists(chances, min_size=1, max_size=20), st.floats(0.0, 6.0))
def test_only_what_is_affordable_is_planned(
    curve: CostModel, acceptance: list[float], affordable: float
) -> None:
    plan = best_length(acceptance, curve, rate=1.0, affordable=affordable, draft_cost=0.1)
    lost = curve.of_draft(plan.length) + plan.length * 0.1
    assert plan.length == 0 or lost <= affordable + 1e-9
    whole = best_length(acceptance, curve, rate=1.0, affordable=PLENTY, draft_cost=0.1)
    assert plan.gain <= whole.gain + 1e-12


def test_a_cheaper_length_is_taken_where_the_best_cannot_be_afforded() -> None:
    curve = costs(STEPPED)
    assert best_length([0.97] * 15, curve, rate=1.0, affordable=PLENTY).length == 15
    assert best_length([0.97] * 15, curve, rate=1.0, affordable=4.0).length == 9
    assert best_length([0.97] * 15, curve, rate=1.0, affordable=1.35).length == 3
    assert best_length([0.97] * 15, curve, rate=1.0, affordable=0.5) == NOTHING


def test_costs_of_drafting_and_of_switching_count() -> None:
    free = best_length([0.8] * 15, costs(FLAT), rate=1.0, affordable=PLENTY)
    drawn = best_length([0.8] * 15, costs(FLAT), rate=1.0, affordable=PLENTY, draft_cost=0.2)
    late = best_length([0.8] * 15, costs(FLAT), rate=1.0, affordable=PLENTY, start_cost=5.0)
    assert drawn.length < free.length
    assert late == NOTHING
    assert best_length([0.9], costs({1: 1, 2: 1.89}), rate=1.0, affordable=PLENTY).length == 1
    assert best_length([0.9], costs({1: 1, 2: 1.89}, 0.05), rate=1.0, affordable=PLENTY) == NOTHING


def test_a_draft_begun_is_continued_by_what_is_left_to_gain() -> None:
    """Two tokens drawn at STEPPED stand before a pass that is cheaper with a third."""
    curve = costs(STEPPED)
    more = best_length([0.1, 0.8], curve, rate=1.0, affordable=PLENTY, drafted=2)
    assert (more.length, more.gain) == (1, pytest.approx(0.1 + 0.2))
    assert best_length([0.1], curve, rate=1.0, affordable=PLENTY, drafted=3) == NOTHING
    onward = best_length([0.9] * 12, curve, rate=1.0, affordable=PLENTY, drafted=3)
    assert onward.length in (4, 12)
    assert best_length([0.9], curve, rate=1.0, affordable=PLENTY, drafted=15) == NOTHING


def test_a_continuation_pays_its_own_way_at_the_present_rate() -> None:
    begun = best_length([0.5], costs({1: 1.0, 2: 1.2, 3: 1.4}), rate=2.0, affordable=1.0, drafted=1)
    assert (begun.length, begun.gain) == (1, pytest.approx(0.5 - 2.0 * 0.2))
    dear = best_length([0.5], costs({1: 1.0, 2: 1.2, 3: 1.4}), rate=3.0, affordable=1.0, drafted=1)
    assert dear == NOTHING


@pytest.mark.parametrize("points", [STEPPED, FLAT, STEEP])
@pytest.mark.parametrize("draft_cost", [0.0, 0.02, 0.25])
def test_break_even_is_where_the_predicted_speedup_is_1(
    points: dict[int, float], draft_cost: float
) -> None:
    curve = costs(points)
    needed = break_even(curve, draft_cost)
    if needed > 1.0:
        assert predicted_speedup(lambda _: 1.0, curve, draft_cost) < 1.0
        return
    assert predicted_speedup(lambda _: needed + 0.001, curve, draft_cost) >= 1.0
    assert predicted_speedup(lambda _: max(needed - 0.001, 0.0), curve, draft_cost) < 1.0


def test_break_even_of_known_curves() -> None:
    assert break_even(costs({1: 1.0, 2: 1.7})) == pytest.approx(0.7, abs=1e-3)
    assert break_even(costs({1: 1.0, 2: 1.7}), draft_cost=0.1) == pytest.approx(0.8, abs=1e-3)
    assert break_even(costs({1: 1.0, 2: 1.7}, 0.05)) == pytest.approx(0.75, abs=1e-3)
    assert break_even(costs({1: 1.0, 2: 2.1})) == float("inf")
    assert 0.6 < break_even(costs(STEPPED)) < 0.7


@common
@given(curves(), chances)
def test_the_predicted_speedup_is_reached_by_the_best_plan(curve: CostModel, chance: float) -> None:
    predicted = predicted_speedup(lambda _: chance, curve, 0.05)
    plan = best_length(
        [chance] * 15, curve, rate=max(predicted, 1.0), affordable=PLENTY, draft_cost=0.05
    )
    tokens, cost = tokens_and_cost([chance] * 15, plan.length, curve, 0.05)
    assert tokens / cost == pytest.approx(max(predicted, 1.0))


def test_the_speedup_may_differ_by_position() -> None:
    curve = costs({1: 1.0, 2: 1.5, 3: 2.0})
    chances_by_place = [1.0, 0.0]
    assert predicted_speedup(lambda p: chances_by_place[p], curve) == pytest.approx(2.0 / 1.5)
