"""What tokens are worth that several drafters propose for one place: who agrees, who does not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from decoding.acceptance import LEAST, Count

_OWN_SHARE = 0.5
"""Of what a second drafter says, how much is its own, until it is known: drafters err alike."""

Kind = tuple[tuple[str, ...], tuple[str, ...], int]
"""Who proposes a token, who proposes another, and the tenth that the expectation lies in."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A line of certain tokens.

    acceptance: of each token, given that those before it are accepted.
    """

    drafter: str
    tokens: tuple[int, ...]
    acceptance: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Contest:
    """A place that several proposals reach after the same tokens.

    alike: which ones. expected: each token proposed, how likely it is the one, and its kind.
    """

    place: int
    alike: list[int]
    expected: list[tuple[int, float, Kind]]


class Consensus:
    """Estimates from who proposes what, corrected by how often such a token was right.

    A drafter's own estimate is a mean over all that the others say. Where one agrees it is too
    low, where one contradicts it is too high.
    """

    def __init__(self) -> None:
        self._counts: dict[Kind, Count] = {}
        self._proposals: Sequence[Proposal] = ()
        self._contests: list[_Contest] = []

    def weighed(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """The same with the acceptance that follows from all of them.

        That of different tokens that follow the same ones is at most 1 in sum.
        """
        self._proposals = proposals
        self._contests = list(_contests(proposals)) if len(proposals) > 1 else []
        if not self._contests:
            return list(proposals)
        found = [list(one.acceptance) for one in proposals]
        for contest in self._contests:
            shares: dict[int, float] = {}
            for token, share, kind in contest.expected:
                count = self._counts.get(kind)
                shares[token] = share if count is None else count.mean(share)
            total = max(sum(shares.values()), 1.0)
            for index in contest.alike:
                token = proposals[index].tokens[contest.place]
                found[index][contest.place] = shares[token] / total
        pairs = zip(proposals, found, strict=True)
        return [Proposal(one.drafter, one.tokens, acceptance) for one, acceptance in pairs]

    def learn(self, said: Sequence[int]) -> None:
        """Judge what was last weighed, sent or not, by what the model said."""
        text = tuple(said)
        for contest in self._contests:
            place = contest.place
            before = self._proposals[contest.alike[0]].tokens[:place]
            if place < len(text) and before == text[:place]:
                for token, _, kind in contest.expected:
                    self._counts.setdefault(kind, Count()).add(token == text[place])
        self._contests = []


def by_token(
    proposals: Sequence[Proposal], alike: Sequence[int], place: int
) -> dict[int, list[int]]:
    """Of some proposals, those that reach a place, by what they propose there."""
    found: dict[int, list[int]] = {}
    for index in alike:
        tokens = proposals[index].tokens
        if place < len(tokens):
            found.setdefault(tokens[place], []).append(index)
    return found


def _contests(proposals: Sequence[Proposal]) -> Iterator[_Contest]:
    waiting = [(0, list(range(len(proposals))))]
    while waiting:
        place, alike = waiting.pop()
        groups = by_token(proposals, alike, place)
        reaching = [index for group in groups.values() for index in group]
        if len(reaching) > 1:
            yield _Contest(place, reaching, _expectations(proposals, groups, place))
            waiting.extend((place + 1, group) for group in groups.values() if len(group) > 1)


def _expectations(
    proposals: Sequence[Proposal], groups: Mapping[int, Sequence[int]], place: int
) -> list[tuple[int, float, Kind]]:
    """What a contest has, if drafters err independently.

    Bayes' rule over the tokens proposed and none of them, from the odds of each.
    """
    odds: dict[int, float] = {}
    names: dict[int, tuple[str, ...]] = {}
    for token, group in groups.items():
        says = sorted((proposals[index].acceptance[place] for index in group), reverse=True)
        wrong = 1.0 - says[0]
        for further in says[1:]:
            wrong *= 1.0 - _OWN_SHARE * further
        odds[token] = 1.0 / max(wrong, LEAST) - 1.0
        names[token] = tuple(proposals[index].drafter for index in group)
    total = 1.0 + sum(odds.values())
    found: list[tuple[int, float, Kind]] = []
    for token, supporters in names.items():
        against = tuple(name for other in names if other != token for name in names[other])
        share = odds[token] / total
        found.append((token, share, (supporters, against, int(10.0 * share))))
    return found
