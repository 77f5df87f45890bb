"""Several drafters vote on each token, weighted by their recent hit rates."""

from collections.abc import Iterator, Sequence

from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, Drafter, KeepOn, refusal_of_all
from decoding.drafters.base import GrowingDraft
from decoding.estimation.acceptance import Count
from decoding.sampling.sampler import Sampler

_PRIOR = 0.5
"""Prior hit rate of a voter; ties go to the first."""


def elect(ballots: Sequence[int | None], rates: Sequence[float]) -> int | None:
    """The token with the highest sum of rates; ties go to the first voter. None without ballots.

    ballots: of each voter, None for nothing.
    """
    weights: dict[int, float] = {}
    for ballot, rate in zip(ballots, rates, strict=True):
        if ballot is not None:
            weights[ballot] = weights.get(ballot, 0.0) + rate
    return max(weights, key=weights.__getitem__, default=None)


class Vote(Drafter):
    """Drafts, at each position, the token with the highest sum of its voters' hit rates.

    Every voter proposes at temperature 0, so that its ballot is certain given the text; hit rates
    depend on earlier text alone. So the draft is certain too, a point mass on each token, whatever
    the settings of the reply. Voters propose one token at a time, after the tokens elected before.
    """

    def __init__(
        self,
        name: str,
        voters: Sequence[Drafter],
        *,
        end_tokens: frozenset[int] = frozenset(),
        max_draft: int = MOST_DRAFTED,
    ) -> None:
        self.name = name
        self.is_free = all(voter.is_free for voter in voters)
        self._voters = tuple(voters)
        self._end_tokens = end_tokens
        self._max_draft = max_draft
        self._rates = tuple(Count() for _ in voters)
        self._after = 0
        self._elections: list[tuple[Sequence[int | None], int]] = []
        """Ballots and the elected token at each position of the last draft."""

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        certain = sampler.at(0.0)
        self._elections = []
        for voter in self._voters:
            voter.begin(history, certain)

    def rest(self) -> None:
        for voter in self._voters:
            voter.rest()

    def backlog(self, history: Sequence[int]) -> int:
        able = [voter for voter in self._voters if not voter.refusal(history)]
        return max((voter.backlog(history) for voter in able), default=0)

    def refusal(self, history: Sequence[int]) -> str:
        return refusal_of_all(self._voters, history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        for voter in self._voters:
            yield from voter.read(history)

    def commit(self, history: Sequence[int]) -> None:
        said = history[self._after :]
        for (ballots, elected), token in zip(self._elections, said, strict=False):
            for rate, ballot in zip(self._rates, ballots, strict=True):
                if ballot is not None:
                    rate.add(ballot == token)
            if elected != token:
                break
        self._elections = []
        for voter in self._voters:
            voter.commit(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self._after = len(history)
        self._elections = []
        text = list(history)
        draft, rates = GrowingDraft(), [rate.mean(_PRIOR) for rate in self._rates]
        wants_more = True
        while wants_more and len(draft) < min(limit, self._max_draft):
            ballots = [_ballot(voter, text) for voter in self._voters]
            elected = elect(ballots, rates)
            if elected is None:
                break
            self._elections.append((ballots, elected))
            supporters = [voter for voter, ballot in enumerate(ballots) if ballot == elected]
            confidence = max(rates[voter] for voter in supporters)
            evidence = sum(1 << voter for voter in supporters)
            draft.add(elected, confidence, evidence)
            text.append(elected)
            if elected in self._end_tokens:
                break
            wants_more = keep_on is None or keep_on(confidence, evidence)
        return draft.done(self.name) if draft.tokens else NO_DRAFT


def _ballot(voter: Drafter, text: Sequence[int]) -> int | None:
    """The next token a voter proposes, None for nothing."""
    tokens = () if voter.refusal(text) else voter.propose(text, 1).tokens
    return tokens[0] if tokens else None
