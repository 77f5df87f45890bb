"""A sampled tree that grows where its tokens are likely to be accepted, best first.

As in SpecExec (Svirschevski et al. 2024, arXiv 2406.02532), but exact at every temperature: which
nodes get children, and how many, is decided before any of these is sampled, and no sampled node is
dropped. Traversal verification accepts a node with its share whatever the shape below it is, so
the shape may follow tokens that were sampled elsewhere (enumerated in
tests/decoding/verification/test_branching_exact.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from backends.base.parent_array import path_to
from decoding.draft import evidence_class
from decoding.drafters.model.planned import Growth
from decoding.drafters.model.siblings import without_replacement
from decoding.drafters.model.tree_reader import TreeReader
from decoding.forms import TreeWithoutReplacement
from decoding.sampling.distribution import Distribution
from decoding.sampling.sampler import Sampler


@dataclass(slots=True)
class SampledGrowth:
    """A tree in growth, below a history.

    most: nodes that it may have. joint: estimated probability that each node and those above it
    are accepted; of the root, 1.
    """

    reader: TreeReader
    sampler: Sampler
    growth: Growth
    history: Sequence[int]
    most: int
    end_tokens: frozenset[int]
    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    distributions: list[Distribution] = field(default_factory=list[Distribution])
    joint: dict[int, float] = field(default_factory=lambda: {-1: 1.0})
    numbers: dict[int, int] = field(default_factory=lambda: {-1: -1})
    """Number in the reader of each expanded node."""

    def tree(self, depth: int) -> TreeWithoutReplacement:
        """Grow at most depth levels.

        Raises:
            ModelError: the engine failed.
        """
        rows = self.reader.top(self.history)
        level = [-1]
        for remaining in range(depth, 0, -1):
            first = len(self.tokens)
            for node, row in zip(level, rows, strict=True):
                path = [self.tokens[above] for above in path_to(node, self.parents)]
                self._sample(node, self.sampler.distribution(row, self.history, path))
            level = self._to_expand(first)
            if remaining == 1 or sum(self.joint[node] for node in level) < self.growth.level:
                break
            if not level:
                break
            added, rows = self.reader.level(
                [self.tokens[node] for node in level],
                [self.numbers[self.parents[node]] for node in level],
            )
            self.numbers.update(zip(level, added, strict=True))
        return TreeWithoutReplacement(
            tuple(self.tokens), tuple(self.parents), tuple(self.distributions)
        )

    def _sample(self, node: int, q_draft: Distribution) -> None:
        """Sample as many children of a node as are expected to be worth verifying."""
        growth, above = self.growth, self.joint[node]
        worth = sum(above * share >= growth.least for share in growth.by_rank)
        count = min(max(worth, int(node < 0)), self.most - len(self.tokens))
        siblings = without_replacement(q_draft, self.sampler.drafting)
        for rank, token in enumerate(islice(siblings, max(count, 0))):
            share = growth.by_rank[rank]
            if rank == 0:
                share = growth.of_token(share, evidence_class(q_draft.of(token)))
            self.joint[len(self.tokens)] = above * share
            self.tokens.append(token)
            self.parents.append(node)
            self.distributions.append(q_draft)

    def _to_expand(self, first: int) -> list[int]:
        """The nodes from first on of which a child is expected to be worth verifying."""
        least = self.growth.least / max(self.growth.by_rank[0], 1e-9)
        nodes = range(first, len(self.tokens))
        worth = [
            node
            for node in nodes
            if self.joint[node] >= least and self.tokens[node] not in self.end_tokens
        ]
        left = self.most - len(self.tokens)
        best = sorted(worth, key=lambda node: -self.joint[node])[: max(left, 0)]
        return sorted(best)
