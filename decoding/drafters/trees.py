"""Trees of a drafter: planned shapes, a context that runs levels, and trees that grow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from backends.base import Context, Logits
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, PointMassTree, with_confidence
from decoding.drafters.base import Reader, ReadsBacklog
from decoding.estimation.cost import TreeSize
from decoding.sampling.distribution import Distribution
from decoding.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A tree without tokens, level by level, with siblings in a row.

    parents: index of each node's parent, -1 for the root, the end of the history.
    ranks: index of each node among its siblings.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]

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
        self._nodes = {}  # of a reply that ended so; the context drops them with its next call
        super().begin(history)

    def commit(self, history: Sequence[int]) -> None:
        self._settle(history)
        super().commit(history)

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


# A tree that grows where its drafter model is confident: EAGLE-2's dynamic tree on any model.
#
# Li et al. 2024 (arXiv 2406.16858), section 4: a node's score is the product of the drafter's own
# probabilities down to it, which approximates its acceptance. Each level expands the nodes with
# the highest scores in one pass, and of all nodes the best are drafted.


@dataclass(frozen=True, slots=True)
class _Node:
    """Candidate token of the tree.

    score: product of its confidence and those above it. path: the tokens down to it. parent: node
    above it, -1 for the end of the history. above: the parent's number in the reader.
    """

    score: float
    confidence: float
    path: tuple[int, ...]
    parent: int
    above: int


class DynamicTree(ReadsBacklog[TreeReader]):
    """Drafts the likeliest tokens of a model as point masses, at every temperature.

    n_vocab is the target's: entries past it are padding.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        size: TreeSize,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(name, TreeReader(context, n_vocab), end_tokens)
        self.largest = size
        self._context = context
        self._size, self._width = size, size.nodes

    def plan(self, shape: TreeShape) -> None:
        """Draft trees of the shape's size, depth and width, grown where the model is confident."""
        self._size = TreeSize(
            min(shape.depth, self.largest.depth), min(shape.nodes, self.largest.nodes)
        )
        self._width = max(shape.widths, default=0)

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        is_greedy = sampler.settings.temperature == 0.0  # a point mass would give a single branch
        super().begin(history, sampler.at(1.0) if is_greedy else sampler)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        depth = min(limit, self._size.depth)
        if min(depth, self._size.nodes, self._reader.room(history)) <= 0:
            return NO_DRAFT
        row = self._reader.top(history)[0]
        nodes = self._children(row, _Node(1.0, 1.0, (), -1, -1), -1, -1, history)
        self._grow(nodes, depth, history)
        return self._drafted(nodes) if nodes else NO_DRAFT

    def _grow(self, nodes: list[_Node], depth: int, history: Sequence[int]) -> None:
        """Add the levels below the first, expanding only nodes that would be drafted."""
        context = self._context
        most = min(context.max_branches, context.max_logits, self._reader.room(history))
        first = run = 0
        for _ in range(1, depth):
            level = self._to_expand(nodes, first, min(self._width, most - run))
            if not level:
                return
            numbers, rows = self._reader.level(
                [nodes[node].path[-1] for node in level], [nodes[node].above for node in level]
            )
            first, run = len(nodes), run + len(level)
            for node, number, row in zip(level, numbers, rows, strict=True):
                nodes += self._children(row, nodes[node], node, number, history)

    def _to_expand(self, nodes: Sequence[_Node], first: int, count: int) -> list[int]:
        """The best nodes from first on that are among the best of all and do not end a reply."""
        best = (
            node
            for node in _best(nodes, self._size.nodes)
            if node >= first and nodes[node].path[-1] not in self.end_tokens
        )
        return sorted(islice(best, max(count, 0)))

    def _children(
        self,
        row: NDArray[np.float32],
        node: _Node,
        parent: int,
        number: int,
        history: Sequence[int],
    ) -> list[_Node]:
        """The likeliest children of a node, best first; row: the logits after it."""
        q_draft = self._sampler.q_draft(row, history, node.path)
        if q_draft is None:
            return []
        return [
            _Node(node.score * share, share, (*node.path, token), parent, number)
            for token, share in _likeliest(q_draft, self._size.nodes)
        ]

    def _drafted(self, nodes: Sequence[_Node]) -> Draft:
        """A draft of the best nodes; their parents are among them, as scores never rise."""
        kept = sorted(_best(nodes, self._size.nodes))
        index = {node: number for number, node in enumerate(kept)} | {-1: -1}
        tokens = tuple(nodes[node].path[-1] for node in kept)
        tree = PointMassTree(tokens, tuple(index[nodes[node].parent] for node in kept))
        return with_confidence(tree, self.name, [nodes[node].confidence for node in kept])


def _best(nodes: Sequence[_Node], count: int) -> list[int]:
    """Nodes with the highest scores, highest first; ties go to the earlier one."""
    return nlargest(count, range(len(nodes)), key=lambda node: nodes[node].score)


def _likeliest(q_draft: Distribution, count: int) -> list[tuple[int, float]]:
    """The count likeliest tokens with their probabilities, highest first."""
    count = min(count, len(q_draft.ids))
    best = np.argpartition(q_draft.probabilities, -count)[-count:]
    best = best[np.argsort(-q_draft.probabilities[best], kind="stable")]
    return list(zip(q_draft.ids[best].tolist(), q_draft.probabilities[best].tolist(), strict=True))
