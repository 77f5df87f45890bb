"""Several drafters' proposals as one: their agreement, and a tree whose best nodes are sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from decoding.draft import Draft, PointMassLine, PointMassTree
from decoding.estimation.acceptance import LEAST, Count

_OWN_SHARE = 0.5
"""Prior share of a second drafter's support that is independent, as drafters make similar errors.
A guess, corrected by counts; not measured."""

Support = tuple[tuple[str, ...], tuple[str, ...], int]
"""Drafters that propose a token, drafters that propose others, and the estimate in tenths."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed line of certain tokens.

    acceptance: estimate for each token, given that those before it are accepted.
    """

    drafter: str
    tokens: tuple[int, ...]
    acceptance: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Contest:
    """A position that several proposals reach after the same tokens.

    alike: indices of these proposals. expected: each proposed token, its probability and support.
    """

    position: int
    alike: list[int]
    expected: list[tuple[int, float, Support]]


class Consensus:
    """Combines drafters' estimates, and corrects them by how often such tokens were right.

    A drafter's own estimate is a mean over all cases: too low where another drafter agrees, too
    high where one disagrees.
    """

    def __init__(self) -> None:
        self._counts: dict[Support, Count] = {}
        self._proposals: Sequence[Proposal] = ()
        self._contests: list[_Contest] = []

    def weighed(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """The proposals with acceptance estimated from all of them together.

        The estimates of different tokens after the same ones sum to at most 1.
        """
        self._proposals = proposals
        self._contests = list(_contests(proposals)) if len(proposals) > 1 else []
        if not self._contests:
            return list(proposals)
        acceptance = [list(proposal.acceptance) for proposal in proposals]
        for contest in self._contests:
            shares: dict[int, float] = {}
            for token, share, support in contest.expected:
                count = self._counts.get(support)
                shares[token] = share if count is None else count.mean(share)
            total = max(sum(shares.values()), 1.0)
            for index in contest.alike:
                token = proposals[index].tokens[contest.position]
                acceptance[index][contest.position] = shares[token] / total
        pairs = zip(proposals, acceptance, strict=True)
        return [Proposal(line.drafter, line.tokens, estimates) for line, estimates in pairs]

    def learn(self, emitted: Sequence[int]) -> None:
        """Count which of the last proposals, sent or not, match the emitted tokens."""
        text = tuple(emitted)
        for contest in self._contests:
            position = contest.position
            before = self._proposals[contest.alike[0]].tokens[:position]
            if position < len(text) and before == text[:position]:
                for token, _, support in contest.expected:
                    self._counts.setdefault(support, Count()).add(token == text[position])
        self._contests = []


def by_token(
    proposals: Sequence[Proposal], alike: Sequence[int], position: int
) -> dict[int, list[int]]:
    """Indices of proposals by their token at a position, without those that end before it."""
    groups: dict[int, list[int]] = {}
    for index in alike:
        tokens = proposals[index].tokens
        if position < len(tokens):
            groups.setdefault(tokens[position], []).append(index)
    return groups


def _contests(proposals: Sequence[Proposal]) -> Iterator[_Contest]:
    queue = [(0, list(range(len(proposals))))]
    while queue:
        position, alike = queue.pop()
        groups = by_token(proposals, alike, position)
        reaching = [index for group in groups.values() for index in group]
        if len(reaching) > 1:
            yield _Contest(position, reaching, _expectations(proposals, groups, position))
            queue.extend((position + 1, group) for group in groups.values() if len(group) > 1)


def _expectations(
    proposals: Sequence[Proposal], groups: Mapping[int, Sequence[int]], position: int
) -> list[tuple[int, float, Support]]:
    """Probability and support of each proposed token, if drafters err independently.

    Bayes' rule over the proposed tokens and none of them, from the odds of each.
    """
    odds: dict[int, float] = {}
    names: dict[int, tuple[str, ...]] = {}
    for token, group in groups.items():
        estimates = sorted((proposals[index].acceptance[position] for index in group), reverse=True)
        wrong = 1.0 - estimates[0]
        for further in estimates[1:]:
            wrong *= 1.0 - _OWN_SHARE * further
        odds[token] = 1.0 / max(wrong, LEAST) - 1.0
        names[token] = tuple(proposals[index].drafter for index in group)
    total = 1.0 + sum(odds.values())
    expected: list[tuple[int, float, Support]] = []
    for token, supporters in names.items():
        against = tuple(name for other in names if other != token for name in names[other])
        share = odds[token] / total
        expected.append((token, share, (supporters, against, int(10.0 * share))))
    return expected


# Union of several drafters' proposals: a tree whose best nodes are sent.
#
# Miao et al. 2024, "SpecInfer" (arXiv 2305.09781), merge token trees in this way. Nodes are
# selected as in EVICT (arXiv 2605.00342): the likeliest ones, as many as gain more than they cost.

_LEAST_JOINT = 0.005
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
            if joint_of_child > _LEAST_JOINT:
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
