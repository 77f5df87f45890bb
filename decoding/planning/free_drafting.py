"""Asks free drafters and selects the best of their proposals."""

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

_UNBOUNDED = float("inf")


@dataclass(slots=True, eq=False)  # freezing takes time at each step
class Offer:
    """A draft and its expected gain.

    expected: number of accepted tokens. refused: first token of a draft that pays but is not
    affordable, None if there is none. promising: the drafters of which a draft would pay,
    affordable or not.
    """

    draft: Draft = NO_DRAFT
    gain: float = 0.0
    expected: float = 0.0
    refused: int | None = None
    promising: Sequence[ManagedDrafter] = ()


Proposed = tuple[ManagedDrafter, Draft, Sequence[float]]
"""A proposal, sent or not, and the acceptance of each token, given that all before it are."""


def best_of_each_length(proposals: Sequence[Proposed]) -> list[Option]:
    """Of drafts of each length, the best proposal's; drafting them costs nothing."""
    each = zip_longest(*(expected_tokens(shares) for *_, shares in proposals), fillvalue=0.0)
    best = accumulate(map(max, each), max, initial=0.0)
    return [(count, more, 0.0) for count, more in enumerate(best)]


class FreeDrafting:
    """Asks the free drafters that are due, and compares their proposals."""

    def __init__(self, costs: CostModel, n_vocab: int) -> None:
        self._costs = costs
        self._n_vocab = n_vocab
        self._of_reply: Sequence[ManagedDrafter] = ()
        self._sampler = Sampler(SamplingSettings())

    def add(self, drafters: Sequence[ManagedDrafter]) -> None:
        """Take in drafters that know something of the reply itself."""
        self._of_reply = (*self._of_reply, *drafters)

    def remove(self, drafters: Sequence[ManagedDrafter]) -> None:
        self._of_reply = tuple(one for one in self._of_reply if one not in drafters)

    def begin(self, sampler: Sampler) -> None:
        self._sampler = sampler

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
        promising: list[ManagedDrafter] = []
        refused: int | None = None
        for managed, draft, acceptance in proposals:
            lengths = options(acceptance, self._costs)
            plan = best_affordable(lengths, rate, affordable)
            if plan.gain > offer.gain:
                expected = lengths[plan.length - 1][1]
                offer = Offer(draft.first(plan.length), plan.gain, expected)
            if plan is NOTHING:
                if best_affordable(lengths, rate, _UNBOUNDED).length == 0:
                    continue
                refused = draft.tokens[0]
            promising.append(managed)
        return replace(offer, refused=refused, promising=promising)
