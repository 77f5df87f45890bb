"""The draft that gains most of what free drafters propose, alone or together."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from decoding.draft import NO_DRAFT, Draft
from decoding.estimation.cost import CostModel
from decoding.planning.consensus import Consensus, Proposal
from decoding.planning.draft_length import NOTHING, Option, best_affordable, options
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.poll_schedule import PollSchedule
from decoding.planning.union_tree import UnionTree, is_forked, union
from decoding.sampling.distribution import SamplingSettings

_UNBOUNDED = float("inf")
_DRIFT_RATE = 0.1
_LARGEST_SURPRISE = 0.5
"""In log seconds; what met a busy machine must not count for more."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft and its expected gain.

    refused: a token that would be drafted if more could be risked, None where nothing would.
    proposals: all that was proposed, sent or not.
    """

    draft: Draft = NO_DRAFT
    gain: float = 0.0
    refused: int | None = None
    proposals: Sequence[tuple[ManagedDrafter, Draft]] = ()


class FreeDrafting:
    """Asks the free drafters that are due, and compares their proposals and the union of these.

    branches: the most leaves of a tree; 1 where the target verifies lines alone.
    """

    def __init__(
        self,
        members: Sequence[ManagedDrafter],
        costs: CostModel,
        n_vocab: int,
        branches: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._asking = [(member, PollSchedule()) for member in members]
        self._costs = costs
        self._n_vocab = n_vocab
        self._most_branches = self._branches = branches
        self._clock = clock
        self._consensus = Consensus()
        self._step = 0
        self._next = 0
        """The first step at which one is due."""
        self._asked: Sequence[ManagedDrafter] = ()
        self._promising: list[ManagedDrafter] = []
        self._seconds = 0.0
        """What it takes to ask one and to learn from it; 0 until measured."""
        self._spent = 0.0

    def begin(self, settings: SamplingSettings) -> None:
        """Start a reply; lossy rules verify lines alone."""
        self._branches = 1 if settings.lossy_in_effect else self._most_branches
        for _, asking in self._asking:
            asking.begin()
        self._next = 0

    def due(self) -> Sequence[ManagedDrafter]:
        """Count a step, and return the drafters that are worth asking at it."""
        self._step += 1
        self._asked = ()
        if self._step < self._next:
            return ()
        return [
            member
            for member, asking in self._asking
            if asking.due <= self._step and not member.dropped
        ]

    def plan(
        self,
        due: Sequence[ManagedDrafter],
        history: Sequence[int],
        limit: int,
        rate: float,
        affordable: float,
    ) -> Offer:
        """The best affordable draft of the drafters that are due; all propose, sent or not.

        limit: of tokens of a line, and of nodes of a tree.
        """
        started = self._clock()
        asked = [(member, member.propose(history, limit, self._n_vocab)) for member in due]
        proposals = [(member, draft) for member, draft in asked if draft.tokens]
        offer = self._best(proposals, limit, rate, affordable)
        self._asked = due
        self._spent = self._clock() - started
        return offer

    def _best(
        self,
        proposals: Sequence[tuple[ManagedDrafter, Draft]],
        limit: int,
        rate: float,
        affordable: float,
    ) -> Offer:
        weighed = self._consensus.weighed(
            [
                Proposal(member.name, draft.tokens, member.estimates.of_draft(draft))
                for member, draft in proposals
            ]
        )
        offer = Offer()
        self._promising = []
        refused: int | None = None
        for (member, draft), line in zip(proposals, weighed, strict=True):
            lengths = options(line.acceptance, self._costs)
            plan = best_affordable(lengths, rate, affordable)
            if plan.gain > offer.gain:
                offer = Offer(draft.first(plan.length), plan.gain)
            if plan is NOTHING:
                if best_affordable(lengths, rate, _UNBOUNDED).length == 0:
                    continue
                refused = line.tokens[0]
            self._promising.append(member)
        if is_forked(weighed):
            tree = union(weighed, limit, self._branches)
            plan = best_affordable(self._options(tree), rate, affordable)
            if plan.gain > offer.gain:
                offer = Offer(tree.draft(plan.length), plan.gain)
        return Offer(offer.draft, offer.gain, refused, proposals)

    def learn(
        self, said: Sequence[int], sent: Collection[str], saved: float, seconds: float = 0.0
    ) -> None:
        """Judge the proposals of the last plan by what the model said.

        sent: names of the drafters whose tokens were verified. saved: plain steps that the step
        saved. seconds: spent on learning from it elsewhere, which is part of the price of asking.
        """
        if not self._asked:
            return
        self._consensus.learn(said)
        self._measure((self._spent + seconds) / len(self._asked))
        price = self._seconds / self._costs.seconds(1)
        for member, asking in self._asking:
            if member in self._asked:
                is_sent = member.name in sent
                gained = saved / len(sent) if is_sent else 0.0
                is_running = is_sent or member in self._promising
                asking.settle(self._step, gained, price, is_running=is_running)
        self._next = min(
            (asking.due for member, asking in self._asking if not member.dropped), default=0
        )

    def _measure(self, seconds: float) -> None:
        if seconds <= 0.0:
            return
        known = self._seconds or seconds
        surprise = min(math.log(seconds / known), _LARGEST_SURPRISE)
        self._seconds = known * math.exp(_DRIFT_RATE * surprise)

    def _options(self, tree: UnionTree) -> list[Option]:
        longest = tree.line_length
        expected = 0.0
        found: list[Option] = []
        for count, joint in enumerate(tree.joint, start=1):
            expected += joint
            cost = self._costs.of_draft(count) if count <= longest else self._costs.of_tree(count)
            found.append((count, expected, cost))
        return found
