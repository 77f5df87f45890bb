"""Several drafters vote on each token; who was right lately counts more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from decoding.acceptance import Count
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, refusal_of_all
from decoding.drafters.growing_draft import GrowingDraft
from decoding.events import Step
from decoding.sampler import Sampler

_PRIOR = 0.5
"""How often a voter is right that nothing is known of; the first of equals wins."""


class HitRate:
    """How often a voter was right lately, by place in the draft."""

    def __init__(self) -> None:
        self._counts: list[Count] = []

    def at(self, place: int) -> float:
        """The share of its ballots that were right; a place seldom reached is like the last."""
        rate = _PRIOR
        for count in self._counts[: place + 1]:
            rate = count.mean(rate)
        return rate

    def add(self, place: int, *, was_right: bool) -> None:
        """Learn from one ballot."""
        self._counts += [Count() for _ in range(place + 1 - len(self._counts))]
        self._counts[place].add(was_right)


@dataclass(frozen=True, slots=True)
class Election:
    """One place: what each voter proposed, None for nothing, and what was elected."""

    ballots: tuple[int | None, ...]
    elected: int

    @property
    def supporters(self) -> list[int]:
        """The voters who proposed what was elected."""
        return [voter for voter, ballot in enumerate(self.ballots) if ballot == self.elected]


def elect(ballots: Sequence[int | None], rates: Sequence[float]) -> Election | None:
    """The token with the highest sum of rates, at a tie the first voter's; None without any."""
    weights: dict[int, float] = {}
    for ballot, rate in zip(ballots, rates, strict=True):
        if ballot is not None:
            weights[ballot] = weights.get(ballot, 0.0) + rate
    return Election(tuple(ballots), max(weights, key=weights.__getitem__)) if weights else None


class Vote:
    """At each place the token that the voters with the highest hit rates together propose.

    Every voter speaks at temperature 0, so that its ballot is certain given the text; hit rates
    come of earlier text alone. The draft is then certain too, a point mass on each token, whatever
    the settings of the reply. A voter is asked for one token after the tokens chosen before.
    """

    def __init__(
        self,
        name: str,
        voters: Sequence[Drafter],
        *,
        end_tokens: frozenset[int] = frozenset(),
        max_draft: int = 15,
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
        certain = Sampler(replace(sampler.settings, temperature=0.0))
        self._elections = []
        for voter in self._voters:
            voter.begin(history, certain)

    def observe(self, step: Step) -> None:
        """Nothing to learn: ballots are judged by what was said."""

    def backlog(self, history: Sequence[int]) -> int:
        able = [voter for voter in self._voters if not voter.refusal(history)]
        return max((voter.backlog(history) for voter in able), default=0)

    def refusal(self, history: Sequence[int]) -> str:
        """Of all voters: one that can draft is enough."""
        return refusal_of_all(self._voters, history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        for voter in self._voters:
            yield from voter.read(history)

    def commit(self, history: Sequence[int]) -> None:
        """Judge every ballot that was cast after what turned out to be said."""
        for place, election in enumerate(self._elections[: len(history) - self._after]):
            said = history[self._after + place]
            for rate, ballot in zip(self._rates, election.ballots, strict=True):
                if ballot is not None:
                    rate.add(place, was_right=ballot == said)
            if election.elected != said:
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
    """What a voter says next, None for nothing."""
    tokens = () if voter.refusal(text) else voter.propose(text, 1).tokens
    return tokens[0] if tokens else None
