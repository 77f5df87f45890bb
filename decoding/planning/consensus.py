"""Acceptance of tokens that several drafters propose, given which drafters agree on them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
