"""What drafters of trees share: planned shapes, and a context that runs a level per pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from backends.base import Context, Logits
from decoding.draft import Drafter
from decoding.drafters.base import Reader
from decoding.estimation.cost import TreeSize


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


class PlannedDrafter(Drafter, Protocol):
    @property
    def largest(self) -> TreeSize: ...

    def plan(self, shape: TreeShape) -> None:
        """Draft in this shape from the next proposal on, cut to the largest."""
        ...


class TreeReader(Reader):
    """A Reader that can also run several branches after the history.

    n_vocab is the target's: entries of a row past it are padding.
    """

    def __init__(self, context: Context, n_vocab: int) -> None:
        super().__init__(context)
        self._n_vocab = n_vocab
        self._length = 0
        """Number of tokens before the tree."""
        self._nodes: dict[tuple[int, int], int] = {}
        """Nodes of the pending tree by parent and token."""

    def begin(self, history: Sequence[int]) -> None:
        self._settle(())
        super().begin(history)

    def commit(self, history: Sequence[int]) -> None:
        self._settle(history)
        super().commit(history)

    def rest(self) -> None:
        self._settle(())

    def read(self, history: Sequence[int]) -> Iterator[int]:
        self._settle(history)
        yield from super().read(history)

    def top(self, history: Sequence[int]) -> Logits:
        """The logits after history, shape (1, n_vocab)."""
        self._settle(history)
        *_, (_, rows) = self.rows(history)
        self._length = len(history)
        return rows[:, : self._n_vocab]

    def level(self, tokens: Sequence[int], parents: Sequence[int]) -> tuple[list[int], Logits]:
        """Run distinct nodes below the history or below earlier nodes.

        parents: numbers of earlier nodes, -1 for the end of the history. Returns the numbers of the
        new nodes and the logits after each, shape (nodes, n_vocab), valid until the next level.

        Raises:
            ModelError: the engine failed; the tree is dropped.
        """
        known, self._nodes = self._nodes, {}
        run = self._context.grow_tree if known else self._context.forward_tree
        rows = run(tokens, parents)
        added = list(range(len(known), len(known) + len(tokens)))
        known.update(zip(zip(parents, tokens, strict=True), added, strict=True))
        self._nodes = known
        return added, rows[:, : self._n_vocab]

    def _settle(self, history: Sequence[int]) -> None:
        """Keep the branch of the pending tree that history continues with."""
        if not self._nodes:
            return
        path: list[int] = []
        for token in history[self._length :]:
            node = self._nodes.get((path[-1] if path else -1, token))
            if node is None:
                break
            path.append(node)
        self._nodes = {}
        self._context.commit(path)
