"""Polls free drafters and selects the best of their proposals."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from decoding.constraint.grammar import ConstraintError
from decoding.draft import NO_DRAFT, Draft, PointMassLine
from decoding.drafters.forced_tokens import with_evidence
from decoding.estimation.cost import CostModel
from decoding.planning.draft_length import NOTHING, Option, best_affordable, options
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings

# Polling schedule of a free drafter: even a little time has to pay.
#
# Gains come in runs of steps. Polled every k steps, a drafter costs price / k a step, and misses
# the first (k - 1) / 2 steps of each run. The k that minimises the sum is given by the square-root
# law of Harris 1913, "How many parts to make at once".

_RUN = 8.0
"""Assumed length of a run of steps that gain. A guess; not measured."""

_HOPED = 0.005
"""Least gain assumed at the start of a reply, in tokens a step, whatever the last reply brought.
A guess; not measured."""

_LEAST = 0.002
"""Least gain assumed of a drafter that has gained nothing for long, as the text may change. A
guess; not measured."""

_MOST_DOUBLED = 4
"""Longest interval as a power of two: 16 steps, the best interval where polling two drafters that
gain nothing takes 0.5 ms of a step of 8.5 ms, as measured with the bundled model on two cores."""

_MEMORY = math.exp(-1.0 / 64.0)
"""Weight that a gain keeps per step: a mean over about 64 steps. A guess; not measured."""


class PollSchedule:
    """Schedules the polling of one drafter by its recent gain, in tokens a step.

    due: the step at which it is polled next; the caller counts steps.
    """

    def __init__(self) -> None:
        self.due = 0
        self._gain = _HOPED
        self._settled = 0

    def begin(self) -> None:
        self._gain = max(self._gain, _HOPED)
        self.due = 0

    def interval(self, price: float) -> int:
        """Steps between polls; price: of one poll, in plain steps.

        A power of two, so that drafters are polled at the same steps.
        """
        squared = 2.0 * _RUN * price / max(self._gain, _LEAST)
        doubled = round(math.log2(squared) / 2.0) if squared > 1.0 else 0
        return 1 << min(doubled, _MOST_DOUBLED)

    def settle(self, step: int, gained: float, price: float, *, is_running: bool) -> None:
        """Record a poll and its gain; is_running: whether the proposal looked promising."""
        kept = _MEMORY ** (step - self._settled)
        self._gain = max(kept * self._gain + (1.0 - _MEMORY) * gained, 0.0)
        self._settled = step
        interval = 1 if is_running else self.interval(price)
        self.due = (step // interval + 1) * interval


_UNBOUNDED = float("inf")

_DRIFT_RATE = 0.1
"""Share of a surprise by which the measured price of a poll is corrected. A guess; not measured."""

_LARGEST_SURPRISE = 0.5
"""Largest surprise that counts, in log seconds, so that one interruption by another program does
not distort the price. A guess; not measured."""


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


def expected_tokens(proposals: Sequence[Proposed]) -> list[Option]:
    """Of drafts of each length, the best proposal's; drafting them costs nothing."""
    longest = max((len(acceptance) for *_, acceptance in proposals), default=0)
    best = [0.0] * (1 + longest)
    for *_, acceptance in proposals:
        joint, total = 1.0, 0.0
        for count, share in enumerate(acceptance, start=1):
            joint *= share
            total += joint
            best[count] = max(best[count], total)
    return [(count, more, 0.0) for count, more in enumerate(accumulate(best, max))]


class FreeDrafting:
    """Polls the free drafters that are due, and compares their proposals."""

    def __init__(
        self,
        drafters: Sequence[ManagedDrafter],
        costs: CostModel,
        n_vocab: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._schedules = [(managed, PollSchedule()) for managed in drafters]
        self._costs = costs
        self._n_vocab = n_vocab
        self._clock = clock
        self._of_reply: Sequence[ManagedDrafter] = ()
        self._step = 0
        self._next = 0
        """First step at which a drafter is due."""
        self._polled: Sequence[ManagedDrafter] = ()
        self._promising: list[ManagedDrafter] = []
        self._poll_seconds = 0.0
        """Price of a poll: asking one drafter and learning from its proposal; 0 until measured."""
        self._spent = 0.0
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
            schedule.begin()
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
        started = self._clock()
        proposals: list[Proposed] = []
        for managed in due:
            draft = self._proposed(managed, history, limit)
            if draft.tokens:
                acceptance = managed.estimates.of_draft(draft)
                if self._costs.is_shared:  # whoever shares the pass decides how much of it is run
                    draft = replace(draft, acceptance=acceptance)
                proposals.append((managed, draft, acceptance))
        self._polled = due
        self._spent = self._clock() - started
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
        started = self._clock()
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
        self._spent += self._clock() - started
        return Offer(offer.draft, offer.gain, refused)

    def learn(self, sent: str, saved: float, seconds: float = 0.0) -> None:
        """Score the proposals of the last plan.

        sent: the drafter whose tokens were verified, "" if none. saved: plain steps that the step
        saved. seconds: spent elsewhere on learning from the step, which is part of a poll's price.
        """
        if not self._polled:
            return
        self._measure((self._spent + seconds) / len(self._polled))
        price = self._poll_seconds / self._costs.seconds(1)
        for managed, schedule in self._schedules:
            if managed in self._polled:
                is_sent = managed.name == sent
                gained = saved if is_sent else 0.0
                is_running = is_sent or managed in self._promising
                schedule.settle(self._step, gained, price, is_running=is_running)
        self._next = min(
            (schedule.due for managed, schedule in self._schedules if not managed.dropped),
            default=0,
        )

    def _measure(self, seconds: float) -> None:
        """Correct the price of a poll by one that took so many seconds."""
        if seconds <= 0.0:
            return
        known = self._poll_seconds or seconds
        surprise = min(math.log(seconds / known), _LARGEST_SURPRISE)
        self._poll_seconds = known * math.exp(_DRIFT_RATE * surprise)
