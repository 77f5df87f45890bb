"""Polls free drafters and selects the best of their proposals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest

from decoding.constraint.grammar import ConstraintError
from decoding.draft import NO_DRAFT, Draft, PointMassLine
from decoding.drafters.forced_tokens import with_evidence
from decoding.estimation.cost import CostModel
from decoding.planning.draft_length import (
    NOTHING,
    Option,
    best_affordable,
    expected_tokens,
    options,
)
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings

_PATIENCE, _SELDOM = 16, 8
"""Steps without a promising proposal after which a drafter is polled at every so many alone. On
4,000 tokens of the bundled model's replies 0.99 to 1.01 of what intervals by price and gain bring
(two cores, a flat curve, an H100's 8B, polls of 0.05 and 1.1 % of a plain step); polled at every
16th step 0.989 on the flat curve."""


class PollSchedule:
    """Schedules the polling of one drafter; due: the step at which it is polled next.

    At each step while its proposals look promising; else rarely, at the steps of all such drafters.
    """

    def __init__(self) -> None:
        self.due = 0
        self._until = _PATIENCE

    def begin(self, step: int) -> None:
        self.due, self._until = 0, step + _PATIENCE

    def settle(self, step: int, *, is_promising: bool) -> None:
        """Record a poll."""
        if is_promising:
            self._until = step + _PATIENCE
        interval = 1 if step < self._until else _SELDOM
        self.due = (step // interval + 1) * interval


_UNBOUNDED = float("inf")


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft and its expected gain.

    refused: first token of a draft that pays but is not affordable, None if there is none.
    """

    draft: Draft = NO_DRAFT
    gain: float = 0.0
    refused: int | None = None


Proposed = tuple[ManagedDrafter, Draft, Sequence[float]]
"""A proposal, sent or not, and the acceptance of each token, given that all before it are."""


def best_of_each_length(proposals: Sequence[Proposed]) -> list[Option]:
    """Of drafts of each length, the best proposal's; drafting them costs nothing."""
    each = zip_longest(*(expected_tokens(shares) for *_, shares in proposals), fillvalue=0.0)
    best = accumulate(map(max, each), max, initial=0.0)
    return [(count, more, 0.0) for count, more in enumerate(best)]


class FreeDrafting:
    """Polls the free drafters that are due, and compares their proposals."""

    def __init__(
        self,
        drafters: Sequence[ManagedDrafter],
        costs: CostModel,
        n_vocab: int,
    ) -> None:
        self._schedules = [(managed, PollSchedule()) for managed in drafters]
        self._costs = costs
        self._n_vocab = n_vocab
        self._of_reply: Sequence[ManagedDrafter] = ()
        self._step = 0
        self._next = 0
        """First step at which a drafter is due."""
        self._polled: Sequence[ManagedDrafter] = ()
        self._promising: list[ManagedDrafter] = []
        self._sampler = Sampler(SamplingSettings())

    def add(self, drafters: Sequence[ManagedDrafter]) -> None:
        """Poll further drafters, before the others: of equal proposals the first is sent.

        They know something of the reply itself.
        """
        self._of_reply = (*self._of_reply, *drafters)
        self._schedules = [*((managed, PollSchedule()) for managed in drafters), *self._schedules]

    def remove(self, drafters: Sequence[ManagedDrafter]) -> None:
        """Poll drafters that were added no more."""
        self._of_reply = tuple(one for one in self._of_reply if one not in drafters)
        self._schedules = [entry for entry in self._schedules if entry[0] not in drafters]
        self._polled, self._promising = (), []

    def begin(self, sampler: Sampler) -> None:
        self._sampler = sampler
        for _, schedule in self._schedules:
            schedule.begin(self._step)
        self._next = 0

    def due(self) -> Sequence[ManagedDrafter]:
        """Count a step, and return the drafters that are due at it."""
        self._step += 1
        self._polled = ()
        if self._step < self._next:
            return ()
        return [
            managed
            for managed, schedule in self._schedules
            if schedule.due <= self._step and not managed.dropped
        ]

    def poll(
        self, due: Sequence[ManagedDrafter], history: Sequence[int], limit: int
    ) -> list[Proposed]:
        """The proposals of the drafters that are due; limit: the most tokens of each."""
        proposals: list[Proposed] = []
        for managed in due:
            draft = self._proposed(managed, history, limit)
            if draft.tokens:
                acceptance = managed.estimates.of_draft(draft)
                if self._costs.is_shared:  # whoever shares the pass decides how much of it is run
                    draft = replace(draft, acceptance=acceptance)
                proposals.append((managed, draft, acceptance))
        self._polled = due
        return proposals

    def _proposed(self, managed: ManagedDrafter, history: Sequence[int], limit: int) -> Draft:
        """A proposal up to the first token that may not follow, which would surely be rejected.

        What the grammar tells of its tokens is their evidence, but for drafters of this reply.
        """
        draft = managed.propose(history, limit, self._n_vocab)
        if self._sampler.constraint is None or not isinstance(draft.form, PointMassLine):
            return draft
        try:
            count = self._sampler.count_allowed(history, draft.tokens)
        except ConstraintError:  # of the grammar along this draft
            return NO_DRAFT
        draft = draft.first(count) if count < len(draft) else draft
        if managed in self._of_reply or not draft.tokens:
            return draft
        return with_evidence(draft, self._sampler.evidence(history, draft.tokens))

    def best(self, proposals: Sequence[Proposed], rate: float, affordable: float) -> Offer:
        """The best affordable draft."""
        offer = Offer()
        self._promising = []
        refused: int | None = None
        for managed, draft, acceptance in proposals:
            lengths = options(acceptance, self._costs)
            plan = best_affordable(lengths, rate, affordable)
            if plan.gain > offer.gain:
                offer = Offer(draft.first(plan.length), plan.gain)
            if plan is NOTHING:
                if best_affordable(lengths, rate, _UNBOUNDED).length == 0:
                    continue
                refused = draft.tokens[0]
            self._promising.append(managed)
        return Offer(offer.draft, offer.gain, refused)

    def learn(self, sent: str) -> None:
        """Schedule the next polls; sent: the drafter whose tokens were verified, "" if none."""
        if not self._polled:
            return
        for managed, schedule in self._schedules:
            if managed in self._polled:
                is_promising = managed.name == sent or managed in self._promising
                schedule.settle(self._step, is_promising=is_promising)
        self._next = min(
            (schedule.due for managed, schedule in self._schedules if not managed.dropped),
            default=0,
        )
