"""Drafters made of others: a cascade, in which each drafts for the next, and a vote."""

import copy
import time
from collections.abc import Callable, Iterator, Sequence

from backends.base import Context
from decoding.draft import (
    MOST_DRAFTED,
    NO_DRAFT,
    Draft,
    Drafter,
    KeepOn,
    Line,
    on_host,
    refusal_of_all,
)
from decoding.drafters.base import GrowingDraft, Reader, ReadsBacklog
from decoding.estimation.acceptance import Count
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.sampling.distribution import Distribution
from decoding.sampling.sampler import NOTHING, Sampler, WarpedRows
from decoding.verification.rules import verify

# Several drafters vote on each token, weighted by their recent hit rates.

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
            draft.add(elected, confidence, evidence=sum(1 << voter for voter in supporters))
            text.append(elected)
            if elected in self._end_tokens:
                break
            wants_more = draft.goes_on(keep_on)
        return draft.done(self.name) if draft.tokens else NO_DRAFT


def _ballot(voter: Drafter, text: Sequence[int]) -> int | None:
    """The next token a voter proposes, None for nothing."""
    tokens = () if voter.refusal(text) else voter.propose(text, 1).tokens
    return tokens[0] if tokens else None


class Cascade(ReadsBacklog[Reader]):
    """Draws from its model's q_draft, several tokens in a pass where a cheaper drafter is right.

    A pass over the cheaper drafter's tokens is verified token by token against q_draft, with random
    numbers of the drafting stream. So each of its tokens (accepted, corrected or bonus) follows
    q_draft given those before it, and carries that distribution. Whether there is a next token
    never depends on what it will be: all tokens of a pass are kept, up to one that ends the reply,
    and a pass that could yield more than is wanted is not made. Block verification would not do:
    its tokens follow q_draft on average over where the pass ends, not given where it ends.

    below: drafts for the model. costs: of the model's passes.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        below: Drafter,
        costs: CostModel,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
        max_draft: int = MOST_DRAFTED,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(name, Reader(context), end_tokens)
        self._context = context
        self.below = below
        self._costs = costs
        self._n_vocab = n_vocab
        self._max_draft = min(max_draft, context.n_chunk - 1, context.max_logits - 1)
        self._clock = clock

    def over(self, below: Drafter) -> "Cascade":
        """Another on the same context, for whose model another drafter drafts."""
        other = copy.copy(self)
        other.below = below
        return other

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        super().begin(history, sampler)
        self.below.begin(history, sampler)

    def commit(self, history: Sequence[int]) -> None:
        super().commit(history)
        self.below.commit(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        yield from super().read(history)
        yield from self.below.read(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        count = min(limit, self._max_draft, self._reader.room(history))
        if count <= 0:
            return NO_DRAFT
        draft = GrowingDraft()
        text = list(history)
        wants_more = True
        while wants_more and len(draft) < count:
            for token, q_draft in self._drawn(text, len(draft), count - len(draft)):
                if token == NOTHING:
                    return draft.done(self.name)
                draft.add(token, q_draft.of(token), q_draft)
                text.append(token)
                if token in self.end_tokens:
                    return draft.done(self.name)
                wants_more = draft.goes_on(keep_on)
        return draft.done(self.name)

    def _drawn(self, text: Sequence[int], drawn: int, most: int) -> list[tuple[int, Distribution]]:
        """The tokens of one pass after text, 1 to most, each with the q_draft it came from.

        drawn: tokens of the draft so far. NOTHING is the last one where its model or the grammar
        fails.

        Raises:
            ModelError: its model fails, and nothing was drawn.
        """
        started = self._clock()
        draft = self.below.propose(text, min(most - 1, self._context.max_rollback))
        assert isinstance(draft.form, Line), "a tree is not verified token by token"
        line = on_host(draft.form)
        drafted_at = self._clock()
        pending = self._reader.pending(text, self._context.n_chunk - len(draft))
        read_at = self._clock()
        rows = self._context.forward([*pending, *draft.tokens], 1 + len(draft))
        q_draft = WarpedRows(rows[:, : self._n_vocab], self._sampler, text, draft.tokens)
        verdict = verify(q_draft, line, self._sampler.drafting)
        if verdict.next_token == NOTHING and not drawn + verdict.accepted:
            self._sampler.q_draft(rows[0, : self._n_vocab], text)
        self._context.truncate(len(text) + verdict.accepted)
        ended = self._clock()
        tokens = (*draft.tokens[: verdict.accepted], verdict.next_token)
        verify_seconds = self._of_pass(ended - read_at, len(pending), len(draft))
        draft_seconds = drafted_at - started
        self.below.observe(
            Step(
                tokens,
                draft.drafter,
                len(draft),
                verdict.accepted,
                draft_seconds,
                verify_seconds,
                draft_seconds + verify_seconds,
                ended,
                empty_drafts=draft.empty_drafts,
            )
        )
        return list(zip(tokens, q_draft.requested, strict=True))

    def _of_pass(self, seconds: float, pending: int, drafted: int) -> float:
        """Seconds that a pass would have taken with a single token pending before the drafted ones.

        For a pass longer than costs are known for, the seconds expected.
        """
        expected = self._costs.seconds(1 + drafted)
        if pending + drafted > self._costs.largest:
            return expected
        return seconds * expected / self._costs.seconds(pending + drafted)
