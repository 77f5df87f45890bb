"""Several drafters vote on each token, weighted by their recent hit rates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, Drafter, KeepOn, refusal_of_all
from decoding.drafters.base import GrowingDraft
from decoding.estimation.acceptance import Count
from decoding.sampling.sampler import Sampler

_PRIOR = 0.5
"""Prior hit rate of a voter; ties go to the first."""


class HitRate:
    def __init__(self) -> None:
        self._counts: list[Count] = []

    def at(self, position: int) -> float:
        """Share of correct ballots; rarely reached positions fall back on the previous one."""
        rate = _PRIOR
        for count in self._counts[: position + 1]:
            rate = count.mean(rate)
        return rate

    def add(self, position: int, *, was_right: bool) -> None:
        """Count one ballot."""
        self._counts += [Count() for _ in range(position + 1 - len(self._counts))]
        self._counts[position].add(was_right)


@dataclass(frozen=True, slots=True)
class Election:
    """The token that each voter proposed at one position, None for nothing, and the winner."""

    ballots: tuple[int | None, ...]
    elected: int

    @property
    def supporters(self) -> list[int]:
        """Voters for the elected token."""
        return [voter for voter, ballot in enumerate(self.ballots) if ballot == self.elected]


def elect(ballots: Sequence[int | None], rates: Sequence[float]) -> Election | None:
    """The token with the highest sum of rates; ties go to the first voter. None without ballots."""
    weights: dict[int, float] = {}
    for ballot, rate in zip(ballots, rates, strict=True):
        if ballot is not None:
            weights[ballot] = weights.get(ballot, 0.0) + rate
    return Election(tuple(ballots), max(weights, key=weights.__getitem__)) if weights else None


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
        self._rates = tuple(HitRate() for _ in voters)
        self._after = 0
        self._elections: list[Election] = []

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
        for position, election in enumerate(self._elections[: len(history) - self._after]):
            token = history[self._after + position]
            for rate, ballot in zip(self._rates, election.ballots, strict=True):
                if ballot is not None:
                    rate.add(position, was_right=ballot == token)
            if election.elected != token:
                break
        self._elections = []
        for voter in self._voters:
            voter.commit(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self._after = len(history)
        self._elections = []
        text = list(history)
        draft = GrowingDraft()
        wants_more = True
        while wants_more and len(draft) < min(limit, self._max_draft):
            rates = [rate.at(len(draft)) for rate in self._rates]
            election = elect([_ballot(voter, text) for voter in self._voters], rates)
            if election is None:
                break
            self._elections.append(election)
            confidence = max(rates[voter] for voter in election.supporters)
            evidence = sum(1 << voter for voter in election.supporters)
            draft.add(election.elected, confidence, evidence)
            text.append(election.elected)
            if election.elected in self._end_tokens:
                break
            wants_more = keep_on is None or keep_on(confidence, evidence)
        return draft.done(self.name) if draft.tokens else NO_DRAFT


def _ballot(voter: Drafter, text: Sequence[int]) -> int | None:
    """The next token a voter proposes, None for nothing."""
    tokens = () if voter.refusal(text) else voter.propose(text, 1).tokens
    return tokens[0] if tokens else None
