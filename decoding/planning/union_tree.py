"""Union of several drafters' proposals: a tree whose best nodes are sent.

Miao et al. 2024, "SpecInfer" (arXiv 2305.09781), merge token trees in this way. Nodes are selected
as in EVICT (arXiv 2605.00342): the likeliest ones, as many as gain more than they cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from decoding.draft import Draft
from decoding.forms import PointMassLine, PointMassTree
from decoding.planning.consensus import Proposal, by_token

_LEAST = 0.005
"""Joint probability below which a token is not considered: no measured pass is so flat that such a
token pays. A guess; not measured."""


@dataclass(slots=True)
class UnionTree:
    """Tokens from the likeliest to the least likely; every prefix is a tree.

    parents: as in PointMassTree. joint: probability that a token and all its ancestors are
    accepted. conditional: probability of a token, given its ancestors. sources: drafter that each
    token is attributed to.
    """

    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    joint: list[float] = field(default_factory=list[float])
    conditional: list[float] = field(default_factory=list[float])
    sources: list[str] = field(default_factory=list[str])

    def append(
        self, parent: int, position: int, joint: float, proposals: Sequence[Proposal]
    ) -> None:
        """Add a token that some proposals have at a position.

        It is attributed to the drafter of its parent, or to the first that proposes it.
        """
        self.tokens.append(proposals[0].tokens[position])
        self.parents.append(parent)
        self.joint.append(joint)
        self.conditional.append(proposals[0].acceptance[position])
        parent_source = self.sources[parent] if parent >= 0 else ""
        names = [proposal.drafter for proposal in proposals]
        self.sources.append(parent_source if parent_source in names else names[0])

    @property
    def line_length(self) -> int:
        """Length of the longest prefix that is a line."""
        for node, parent in enumerate(self.parents):
            if parent != node - 1:
                return node
        return len(self.parents)

    def draft(self, count: int) -> Draft:
        """A draft of the first count tokens, as a line if they form one."""
        tokens = tuple(self.tokens[:count])
        is_line = count <= self.line_length
        sources = tuple(self.sources[:count])
        is_mixed = len(set(sources)) > 1
        return Draft(
            PointMassLine(tokens)
            if is_line
            else PointMassTree(tokens, tuple(self.parents[:count])),
            "+".join(sorted(set(sources))),
            tuple(self.conditional[:count]),
            (0,) * count,
            sources=sources if is_mixed else (),
        )


def is_forked(proposals: Sequence[Proposal]) -> bool:
    """Whether two proposals differ after the same tokens, so that their union is a tree."""
    longest = max((proposal.tokens for proposal in proposals), key=len, default=())
    return any(longest[: len(line.tokens)] != line.tokens for line in proposals)


def union(proposals: Sequence[Proposal], nodes: int, branches: int) -> UnionTree:
    """The likeliest tokens of all proposals, best first; branches is the most leaves.

    A token has the same acceptance in all proposals, as weighed by `consensus`, and is never
    likelier than its parent, so that a best-first search visits only the nodes it keeps.
    """
    tree = UnionTree()
    queue: list[tuple[float, int, int, list[int]]] = []
    """Negative joint probability, parent, position, and the proposals that have the token."""

    def expand(parent: int, position: int, alike: Sequence[int], joint: float) -> None:
        for group in by_token(proposals, alike, position).values():
            joint_of_child = joint * proposals[group[0]].acceptance[position]
            if joint_of_child > _LEAST:
                heappush(queue, (-joint_of_child, parent, position, group))

    expand(-1, 0, range(len(proposals)), 1.0)
    leaves = {-1}
    while queue and len(tree.tokens) < nodes:
        negative, parent, position, group = heappop(queue)
        if parent not in leaves and len(leaves) == branches:
            continue
        leaves.discard(parent)
        leaves.add(len(tree.tokens))
        expand(len(tree.tokens), position + 1, group, -negative)
        tree.append(parent, position, -negative, [proposals[index] for index in group])
    return tree
