"""The best length and the best tree to draft: expected tokens against the time they cost."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

from decoding.drafters.trees import TreeShape
from decoding.estimation.cost import DraftCosts, TreeSize

# The best length of a draft: expected tokens against the time they cost.
#
# The ratio of tokens to time is maximised as in Dinkelbach 1967, "On nonlinear fractional
# programming": a draft is worth its expected tokens less those that its time would yield otherwise.
# Costs are in units of a plain step, rates in tokens per unit; plain decoding has rate 1.


@dataclass(frozen=True, slots=True)
class LengthPlan:
    """A draft length and its expected gain in tokens over plain decoding."""

    length: int
    gain: float


NOTHING = LengthPlan(0, 0.0)

Option = tuple[int, float, float]
"""Number of drafted tokens, expected number of accepted ones, and cost."""


def expected_tokens(acceptance: Iterable[float]) -> Iterator[float]:
    """Expected accepted tokens of drafts of 1, 2 and more; acceptance: as in best_length."""
    return accumulate(accumulate(acceptance, mul))


def best_length(
    acceptance: Sequence[float],
    costs: DraftCosts,
    *,
    rate: float,
    affordable: float,
    draft_cost: float = 0.0,
    start_cost: float = 0.0,
    drafted: int = 0,
) -> LengthPlan:
    """The number of further tokens to draft with the highest gain; all lengths are compared.

    acceptance: of each further token, given that all before it are accepted.
    affordable: the most that may be lost if every drafted token is rejected.
    draft_cost, start_cost: cost of drafting a token, and of starting to draft.
    drafted: tokens drafted already; acceptance[0] must then include their joint acceptance.

    The cost curve is stepped, so a longer draft may pay where a shorter one does not. A rate that
    no length reaches any more is lowered to the highest that one does.
    """
    lengths = options(acceptance, costs, draft_cost, start_cost, drafted)
    if drafted == 0:
        return best_affordable(lengths, rate, affordable)
    return best_of([option for option in lengths if option[2] <= affordable], rate)


def options(
    acceptance: Sequence[float],
    costs: DraftCosts,
    draft_cost: float = 0.0,
    start_cost: float = 0.0,
    drafted: int = 0,
) -> list[Option]:
    """All lengths that best_length compares, ascending."""
    spent, longest = costs.of_draft(drafted), costs.largest - 1 - drafted
    return [
        (count, more, costs.of_draft(drafted + count) - spent + count * draft_cost + start_cost)
        for count, more in enumerate(expected_tokens(acceptance[:longest]), start=1)
    ]


def best_affordable(lengths: Sequence[Option], rate: float, affordable: float) -> LengthPlan:
    allowed = [option for option in lengths if option[2] <= affordable]
    return best_of(allowed, reachable(allowed, rate))


def reachable(lengths: Sequence[Option], rate: float) -> float:
    """A rate, lowered to the highest that an option reaches; never below plain decoding's."""
    if not lengths:
        return 1.0
    return min(rate, max(1.0, *((1.0 + more) / (1.0 + cost) for _, more, cost in lengths)))


def best_of(lengths: Sequence[Option], rate: float) -> LengthPlan:
    """The option with the highest gain, the shortest of equals; NOTHING if none gains."""
    best = NOTHING
    for count, more, cost in lengths:
        gain = more - rate * cost
        if gain > best.gain:
            best = LengthPlan(count, gain)
    return best


def predicted_speedup(
    acceptance: Callable[[int], float],
    costs: DraftCosts,
    draft_cost: float = 0.0,
    limit: int = 1 << 30,
    start_cost: float = 0.0,
) -> float:
    """Speedup over plain decoding at the best fixed length, 1 to limit.

    acceptance: by position. draft_cost, start_cost: of a drafted token, and of starting a draft.
    """
    expected = expected_tokens(map(acceptance, range(min(limit, costs.largest - 1))))
    speedups = (
        (1.0 + more) / (1.0 + costs.of_draft(count) + count * draft_cost + start_cost)
        for count, more in enumerate(expected, start=1)
    )
    return max(speedups, default=0.0)


def break_even(
    costs: DraftCosts, draft_cost: float = 0.0, start_cost: float = 0.0, limit: int = 1 << 30
) -> float:
    """Least acceptance, alike at every position, at which some length is no slower than plain.

    draft_cost, start_cost, limit: as in predicted_speedup.
    Leviathan et al. 2023 (arXiv 2211.17192), section 3.3, with measured verification costs.
    Infinite if even accepting every token would not pay.
    """

    def speedup(acceptance: float) -> float:
        return predicted_speedup(lambda _: acceptance, costs, draft_cost, limit, start_cost)

    if speedup(1.0) < 1.0:
        return float("inf")
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if speedup(middle) < 1.0:
            low = middle
        else:
            high = middle
    return high


# The best tree shape to draft: expected tokens against the cost to draft and to verify it.
#
# Sequoia (Chen et al. 2024, arXiv 2402.12374, section 3.1): a node is accepted with the product of
# the measured acceptance of the ranks on its path, so that the shape is fixed before anything is
# sampled. `decoding.planning.draft_length` defines the gain. If no rank is likelier than the one
# before it, no dynamic programming is needed: the best tree with n nodes, of which the drafter
# expands e, consists of the n likeliest children of the e likeliest nodes.

Path = tuple[int, ...]
"""Ranks on the path from the root to a node; empty for the root."""

_KEPT_TABLES = 32
"""Tables that are cached, as estimates often return to earlier values. A guess; not measured."""

_KEPT_SHAPES = 256
"""Shapes that are cached: a few for each table. A guess; not measured."""


@dataclass(frozen=True, slots=True)
class TreePlan:
    """A tree shape, its expected accepted tokens, and its gain in tokens over plain decoding."""

    shape: TreeShape
    expected: float
    gain: float


NO_TREE = TreePlan(TreeShape((), ()), 0.0, 0.0)


def best_shape(
    by_rank: Sequence[float],
    costs: DraftCosts,
    *,
    rate: float,
    affordable: float,
    level_cost: Callable[[int], float],
    largest_nodes: int,
    largest_depth: int,
    start_cost: float = 0.0,
) -> TreePlan:
    """The shape with the highest gain among all trees of limited size and depth.

    by_rank: probability that the child of each rank is accepted, given that its parent is; they
        sum to at most 1, and are rounded to hundredths that never rise.
    rate, affordable, start_cost: as in decoding.planning.draft_length.best_length.
    level_cost: cost of a drafter pass by number of expanded nodes, extrapolated linearly from 1
        and 2.
    """
    ranks = _rounded(by_rank)
    nodes = min(largest_nodes, costs.largest - 1)
    if not ranks or nodes < 1 or largest_depth < 1:
        return NO_TREE
    first = level_cost(1)
    further = level_cost(2) - first
    verifying = np.array([costs.of_draft(count) for count in range(1, nodes + 1)])
    expected, levels, expanded = _table(ranks, nodes, largest_depth)
    drafting = start_cost + first * levels + further * (expanded - levels)
    cost = drafting[:, None] + verifying
    cost[cost > affordable] = np.inf
    reached = float(((1.0 + expected) / (1.0 + cost)).max())
    rate = min(rate, max(1.0, reached))
    gain = expected - rate * cost
    row, count = divmod(int(gain.argmax()), nodes)
    if gain[row, count] <= 0.0:
        return NO_TREE
    shape = _shape(ranks, int(levels[row]), int(expanded[row]), count + 1)
    return TreePlan(shape, float(expected[row, count]), float(gain[row, count]))


def tree_options(
    by_rank: Sequence[float],
    *,
    rate: float,
    level_cost: Callable[[int], float],
    largest: TreeSize,
    start_cost: float,
) -> list[Option]:
    """The best tree of each number of nodes, from 0 on, and what drafting it costs.

    All but largest as in best_shape.
    """
    ranks, nothing = _rounded(by_rank), [(0, 0.0, 0.0)]
    if not ranks or min(largest.nodes, largest.depth) < 1:
        return nothing
    expected, levels, expanded = _table(ranks, largest.nodes, largest.depth)
    further = level_cost(2) - level_cost(1)
    drafting = start_cost + level_cost(1) * levels + further * (expanded - levels)
    rows = (expected - rate * drafting[:, None]).argmax(axis=0)
    more = expected[rows, np.arange(len(rows))].tolist()
    return nothing + list(zip(range(1, 1 + len(rows)), more, drafting[rows].tolist(), strict=True))


def likeliest(by_rank: Sequence[float], nodes: int, depth: int) -> TreeShape:
    """The shape of nodes nodes with the most expected tokens, whatever it costs."""
    ranks = _rounded(by_rank)
    return _shape(ranks, depth, nodes, nodes) if ranks else NO_TREE.shape


def _rounded(by_rank: Sequence[float]) -> tuple[float, ...]:
    """Acceptance in hundredths, never rising, without zeros."""
    falling = accumulate((round(share, 2) for share in by_rank), min)
    return tuple(share for share in falling if share > 0.0)


@lru_cache(_KEPT_TABLES)
def _table(
    ranks: tuple[float, ...], nodes: int, depth: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Expected tokens of the best trees, with the levels and expanded nodes of each row.

    Column n - 1 is for n nodes, -1 if the tree has fewer.
    """
    rows: list[NDArray[np.float64]] = []
    levels: list[int] = []
    expanded: list[int] = []
    for deep in range(1, depth + 1):
        likelihoods, paths = zip(*_likeliest(ranks, deep, nodes), strict=True)
        children = np.outer(likelihoods, ranks).ravel()
        order = np.argsort(-children, kind="stable")
        children, parents = children[order], order // len(ranks)
        reached = accumulate((len(path) + 1 for path in paths), max)
        for count, level in enumerate(reached, start=1):
            if level == deep:
                row = np.full(nodes, -1.0)
                best = children[parents < count][:nodes]
                row[: len(best)] = best.cumsum()
                rows.append(row)
                levels.append(deep)
                expanded.append(count)
    return np.array(rows), np.array(levels), np.array(expanded)


def _likeliest(ranks: tuple[float, ...], deep: int, count: int) -> Iterator[tuple[float, Path]]:
    """The likeliest nodes that may have children in a tree of depth deep, root first."""
    queue: list[tuple[float, Path]] = [(-1.0, ())]
    for _ in range(count):
        if not queue:
            return
        negative, path = heappop(queue)
        yield -negative, path
        if len(path) + 1 < deep:
            for rank, share in enumerate(ranks):
                heappush(queue, (negative * share, (*path, rank)))


@lru_cache(_KEPT_SHAPES)
def _shape(ranks: tuple[float, ...], deep: int, expanded: int, nodes: int) -> TreeShape:
    """The likeliest children of the likeliest nodes; ties go to the node nearer the root."""
    children = [
        (-likelihood * share, (*path, rank))
        for likelihood, path in _likeliest(ranks, deep, expanded)
        for rank, share in enumerate(ranks)
    ]
    paths = sorted(
        (path for _, path in sorted(children)[:nodes]), key=lambda path: (len(path), path)
    )
    index: dict[Path, int] = {path: node for node, path in enumerate(paths)}
    index[()] = -1
    return TreeShape(tuple(index[path[:-1]] for path in paths), tuple(path[-1] for path in paths))
