"""What tokens are worth that several drafters propose for one place: who agrees, who does not."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.acceptance import LEAST, Count

_OWN_SHARE = 0.5
"""Of what a second drafter says, how much is its own, until it is known: drafters err alike."""

Kind = tuple[tuple[str, ...], tuple[str, ...], int]
"""Who proposes a token, who proposes another, and the tenth that the expectation lies in."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A line of certain tokens.

    acceptance: of each token, given that those before it are accepted, by what its drafter alone
    is known for.
    """

    drafter: str
    tokens: tuple[int, ...]
    acceptance: Sequence[float]


class Consensus:
    """Estimates from who proposes what, corrected by how often such a token was right.

    A drafter's own estimate is a mean over all that the others say. Where one agrees it is too
    low, where one contradicts it is too high.
    """

    def __init__(self) -> None:
        self._counts: dict[Kind, Count] = {}

    def shares(self, proposals: Sequence[Proposal], place: int) -> dict[int, float]:
        """How likely each token proposed at a place is the one; at most 1 in sum.

        proposals: those that reach the place, and are alike up to it.
        """
        if len(proposals) == 1:
            return {proposals[0].tokens[place]: proposals[0].acceptance[place]}
        found: dict[int, float] = {}
        for token, expected, kind in _expectations(proposals, place):
            count = self._counts.get(kind)
            found[token] = expected if count is None else count.mean(expected)
        total = sum(found.values())
        if total > 1.0:
            found = {token: share / total for token, share in found.items()}
        return found

    def along(self, line: Proposal, proposals: Sequence[Proposal]) -> list[float]:
        """The acceptance of a line's tokens, with what the others say; it is one of proposals."""
        found: list[float] = []
        for place, token in enumerate(line.tokens):
            if len(proposals) == 1:
                return [*found, *line.acceptance[place:]]
            found.append(self.shares(proposals, place)[token])
            proposals = after(proposals, place, token)
        return found

    def learn(self, proposals: Sequence[Proposal], said: Sequence[int]) -> None:
        """Judge what was proposed, sent or not, by what the model said."""
        for place, token in enumerate(said):
            if len(proposals) < 2:
                return
            for proposed, _, kind in _expectations(proposals, place):
                self._counts.setdefault(kind, Count()).add(proposed == token)
            proposals = after(proposals, place, token)


def after(proposals: Sequence[Proposal], place: int, token: int) -> list[Proposal]:
    """Those that propose a token at a place, and go on."""
    return [one for one in proposals if one.tokens[place] == token and len(one.tokens) > place + 1]


def _expectations(proposals: Sequence[Proposal], place: int) -> list[tuple[int, float, Kind]]:
    """Each token proposed, how likely it is the one if drafters err independently, and its kind.

    Bayes' rule over the tokens proposed and none of them, from the odds of each.
    """
    names: dict[int, list[str]] = {}
    best: dict[int, float] = {}
    doubt: dict[int, float] = {}
    for one in proposals:
        token, says = one.tokens[place], one.acceptance[place]
        names.setdefault(token, []).append(one.drafter)
        surest = best.get(token, 0.0)
        less = min(surest, says)
        best[token] = max(surest, says)
        doubt[token] = doubt.get(token, 1.0) * (1.0 - _OWN_SHARE * less)
    odds: dict[int, float] = {}
    for token, surest in best.items():
        wrong = max((1.0 - surest) * doubt[token], LEAST)
        odds[token] = (1.0 - wrong) / wrong
    total = 1.0 + sum(odds.values())
    found: list[tuple[int, float, Kind]] = []
    for token, supporters in names.items():
        against = tuple(
            name for other, others in names.items() if other != token for name in others
        )
        share = odds[token] / total
        found.append((token, share, (tuple(supporters), against, int(10.0 * share))))
    return found
