"""The union of several drafters' proposals: a tree, of which the best nodes are worth sending.

Miao et al. 2024, "SpecInfer" (arXiv 2305.09781), merge token trees in this way. What to send of
the union is chosen as in EVICT (arXiv 2605.00342): the likeliest nodes, as many as pay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

from decoding.consensus import Consensus, Proposal, after
from decoding.draft import Draft


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


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A token that may be added: after which node, at which depth, and who proposes it."""

    token: int
    parent: int
    place: int
    proposals: Sequence[Proposal]
    alone: float
    together: float


def union(
    proposals: Sequence[Proposal], consensus: Consensus, most: int, branches: int
) -> UnionTree:
    """The likeliest tokens of all proposals, at most so many nodes and leaves, best first.

    A token is never likelier than the one before it, so that the best is always at hand: no more
    is looked at than is kept.
    """
    tree = UnionTree()
    waiting: list[tuple[float, int, _Candidate]] = []
    seen = 0

    def look(parent: int, place: int, alike: Sequence[Proposal], together: float) -> None:
        nonlocal seen
        for token, alone in consensus.shares(alike, place).items():
            candidate = _Candidate(token, parent, place, alike, alone, together * alone)
            heappush(waiting, (-candidate.together, seen, candidate))
            seen += 1

    look(-1, 0, proposals, 1.0)
    leaves: set[int] = {-1}
    while waiting and len(tree.tokens) < most:
        _, _, best = heappop(waiting)
        if best.parent not in leaves and len(leaves) == branches:
            continue
        node = _add(tree, best)
        leaves.discard(best.parent)
        leaves.add(node)
        further = after(best.proposals, best.place, best.token)
        if further:
            look(node, best.place + 1, further, best.together)
    return tree


def _add(tree: UnionTree, best: _Candidate) -> int:
    tree.tokens.append(best.token)
    tree.parents.append(best.parent)
    tree.together.append(best.together)
    tree.alone.append(best.alone)
    tree.sources.append(_source(tree, best))
    return len(tree.tokens) - 1


def _source(tree: UnionTree, best: _Candidate) -> str:
    """Who proposed the token before it, if that one does; else the surest who does."""
    supporters = [one for one in best.proposals if one.tokens[best.place] == best.token]
    before = tree.sources[best.parent] if best.parent >= 0 else ""
    if any(one.drafter == before for one in supporters):
        return before
    return max(supporters, key=lambda one: one.acceptance[best.place]).drafter
