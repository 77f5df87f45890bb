"""Which tree to draft: expected tokens against the seconds it costs to draft and to verify it.

Sequoia (Chen et al. 2024, arXiv 2402.12374, section 3.1): a node is kept with the product of what
is measured for the ranks on its path, so that the shape is settled before anything is drawn. The
gain is that of `decoding.length`. No dynamic programming is needed where no rank is likelier than
the one before it: the best tree with n nodes and e readings by the drafter is then made of the n
likeliest children of the e likeliest nodes. Any other tree's nodes are, one by one, no likelier.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from decoding.cost import DraftCosts

Path = tuple[int, ...]
"""The ranks on the way down to a node; none for the end of the history."""

_KEPT_TABLES = 32
_KEPT_SHAPES = 256


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A tree without its tokens, level by level, the children of one node in a row.

    parents: the index of the node before each, -1 for the end of the history.
    ranks: which child of its parent each is, from 0.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def nodes(self) -> int:
        """Tokens in all."""
        return len(self.parents)

    @property
    def levels(self) -> list[range]:
        """The nodes of each level, from the children of the end of the history."""
        found: list[range] = []
        first, end = 0, self.parents.count(-1)
        while end > first:
            found.append(range(first, end))
            first, end = end, end + sum(parent in found[-1] for parent in self.parents[end:])
        return found

    @property
    def depth(self) -> int:
        """Tokens on the longest way down."""
        return len(self.levels)

    @property
    def inner(self) -> set[int]:
        """The nodes that have children, -1 among them where there is any."""
        return set(self.parents)

    @property
    def widths(self) -> tuple[int, ...]:
        """How many nodes the drafter has to read for each level: those that have children."""
        above = [range(-1, 0), *self.levels]
        return tuple(len(self.inner.intersection(level)) for level in above[: self.depth])

    def expected(self, by_rank: Sequence[float]) -> float:
        """Tokens that are kept in the mean, by the probability that the child of each rank is."""
        kept: list[float] = []
        for parent, rank in zip(self.parents, self.ranks, strict=True):
            kept.append(by_rank[rank] * (kept[parent] if parent >= 0 else 1.0))
        return sum(kept)

    def within(self, nodes: int, depth: int) -> "TreeShape":
        """Its first nodes and levels."""
        kept = max(min(nodes, sum(map(len, self.levels[: max(depth, 0)]))), 0)
        return TreeShape(self.parents[:kept], self.ranks[:kept])


@dataclass(frozen=True, slots=True)
class TreePlan:
    """A shape, the tokens expected of it, and what it gains, in tokens, over drafting nothing."""

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
    """The shape with the highest gain, all trees of that many nodes and that deep compared.

    by_rank: the probability that the child of each rank is the one kept, given that its parent is;
        they sum to 1 at most. They count in hundredths, and none for more than the one before it.
    rate, affordable, start_cost: as in decoding.length.best_length.
    level_cost: of a pass of the drafter over so many nodes, which gives the children of each; it
        is taken to be a straight line through its values for 1 and 2.
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


def likeliest(by_rank: Sequence[float], nodes: int, depth: int) -> TreeShape:
    """The shape of so many nodes of which most tokens are expected, whatever it costs."""
    ranks = _rounded(by_rank)
    return _shape(ranks, depth, nodes, nodes) if ranks else NO_TREE.shape


def _rounded(by_rank: Sequence[float]) -> tuple[float, ...]:
    """In hundredths, never rising, up to the first that is nothing."""
    falling = accumulate((round(one, 2) for one in by_rank), min)
    return tuple(one for one in falling if one > 0.0)


@lru_cache(_KEPT_TABLES)
def _table(
    ranks: tuple[float, ...], nodes: int, depth: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Tokens expected of the best trees, with the levels and the expanded nodes of each row.

    Column n - 1 is of n nodes, and -1 where so many are not to be had.
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
    """The likeliest nodes that may have children in a tree so deep, the root of all among them."""
    waiting: list[tuple[float, Path]] = [(-1.0, ())]
    for _ in range(count):
        if not waiting:
            return
        negative, path = heappop(waiting)
        yield -negative, path
        if len(path) + 1 < deep:
            for rank, share in enumerate(ranks):
                heappush(waiting, (negative * share, (*path, rank)))


@lru_cache(_KEPT_SHAPES)
def _shape(ranks: tuple[float, ...], deep: int, expanded: int, nodes: int) -> TreeShape:
    """The likeliest children of the likeliest nodes; a tie goes to the node further up."""
    children = [
        (-likelihood * share, (*path, rank))
        for likelihood, path in _likeliest(ranks, deep, expanded)
        for rank, share in enumerate(ranks)
    ]
    paths = sorted((path for _, path in sorted(children)[:nodes]), key=lambda one: (len(one), one))
    index: dict[Path, int] = {path: node for node, path in enumerate(paths)}
    index[()] = -1
    return TreeShape(tuple(index[path[:-1]] for path in paths), tuple(path[-1] for path in paths))
