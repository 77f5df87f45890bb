"""The union of several drafters' proposals: a tree, of which the best nodes are worth sending.

Miao et al. 2024, "SpecInfer" (arXiv 2305.09781), merge token trees in this way. What to send of
the union is chosen as in EVICT (arXiv 2605.00342): the likeliest nodes, as many as pay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

from decoding.consensus import Proposal, by_token
from decoding.draft import Draft

_LEAST = 0.005
"""Probability below which a token pays on no machine."""


@dataclass(slots=True)
class UnionTree:
    """Tokens in the order of their worth, of which any first ones are a tree.

    parents: as in Draft. together: the probability that a token and all above it are accepted.
    alone: of a token, given those above it. sources: the drafter that each token is put down to.
    """

    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    together: list[float] = field(default_factory=list[float])
    alone: list[float] = field(default_factory=list[float])
    sources: list[str] = field(default_factory=list[str])

    def append(
        self, parent: int, place: int, together: float, proposals: Sequence[Proposal]
    ) -> None:
        """Add a token that some propose at a place; it is put down to who proposed the one before.

        Where that one does not propose it, the first who does has it.
        """
        self.tokens.append(proposals[0].tokens[place])
        self.parents.append(parent)
        self.together.append(together)
        self.alone.append(proposals[0].acceptance[place])
        before = self.sources[parent] if parent >= 0 else ""
        names = [one.drafter for one in proposals]
        self.sources.append(before if before in names else names[0])

    @property
    def chain(self) -> int:
        """How many of the first tokens stand in one row."""
        for node, parent in enumerate(self.parents):
            if parent != node - 1:
                return node
        return len(self.parents)

    def draft(self, count: int) -> Draft:
        """The first tokens, as a line where they are one."""
        sources = tuple(self.sources[:count])
        is_mixed = any(one != other for one, other in pairwise(sources))
        return Draft(
            tuple(self.tokens[:count]),
            "+".join(sorted(set(sources))),
            tuple(self.alone[:count]),
            evidence=(0,) * count,
            parents=tuple(self.parents[:count]) if count > self.chain else None,
            sources=sources if is_mixed else (),
        )


def is_forked(proposals: Sequence[Proposal]) -> bool:
    """Whether two propose different tokens after the same ones, so that the union is no line."""
    longest = max(proposals, key=lambda one: len(one.tokens), default=None)
    return any(longest.tokens[: len(one.tokens)] != one.tokens for one in proposals if longest)


def union(proposals: Sequence[Proposal], most: int, branches: int) -> UnionTree:
    """The likeliest tokens of all proposals, at most so many nodes and leaves, best first.

    acceptance: alike for one token of several proposals, as weighed by `decoding.consensus`. A
    token is never likelier than the one before it, so that the best is always at hand: no more is
    looked at than is kept.
    """
    tree = UnionTree()
    waiting: list[tuple[float, int, int, list[int]]] = []
    """Less the probability, the parent, the place, and which proposals have the token."""

    def look(parent: int, place: int, alike: Sequence[int], together: float) -> None:
        for group in by_token(proposals, alike, place).values():
            likely = together * proposals[group[0]].acceptance[place]
            if likely > _LEAST:
                heappush(waiting, (-likely, parent, place, group))

    look(-1, 0, range(len(proposals)), 1.0)
    leaves = {-1}
    while waiting and len(tree.tokens) < most:
        negative, parent, place, group = heappop(waiting)
        if parent not in leaves and len(leaves) == branches:
            continue
        leaves.discard(parent)
        leaves.add(len(tree.tokens))
        look(len(tree.tokens), place + 1, group, -negative)
        tree.append(parent, place, -negative, [proposals[index] for index in group])
    return tree
