"""Shapes of drafted trees, before they have tokens."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A tree without tokens, level by level, with siblings in a row.

    parents: index of each node's parent, -1 for the root, the end of the history.
    ranks: index of each node among its siblings.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.parents)

    @property
    def levels(self) -> list[range]:
        """Nodes of each level below the root."""
        levels: list[range] = []
        first, end = 0, self.parents.count(-1)
        while end > first:
            levels.append(range(first, end))
            first, end = end, end + sum(parent in levels[-1] for parent in self.parents[end:])
        return levels

    @property
    def depth(self) -> int:
        """Number of levels."""
        return len(self.levels)

    @property
    def inner(self) -> set[int]:
        """Nodes that have children, including -1 unless the tree is empty."""
        return set(self.parents)

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of nodes that the drafter expands for each level."""
        above = [range(-1, 0), *self.levels]
        return tuple(len(self.inner.intersection(level)) for level in above[: self.depth])

    def expected(self, by_rank: Sequence[float]) -> float:
        """Expected number of accepted tokens, given the acceptance of each rank."""
        kept: list[float] = []
        for parent, rank in zip(self.parents, self.ranks, strict=True):
            kept.append(by_rank[rank] * (kept[parent] if parent >= 0 else 1.0))
        return sum(kept)

    def within(self, nodes: int, depth: int) -> "TreeShape":
        """The shape cut to its first nodes and levels."""
        kept = max(min(nodes, sum(map(len, self.levels[: max(depth, 0)]))), 0)
        return TreeShape(self.parents[:kept], self.ranks[:kept])
