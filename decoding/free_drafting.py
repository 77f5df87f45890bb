"""What the drafters that take next to no time propose, as the one draft that gains most."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from decoding.asking import Asking
from decoding.consensus import Consensus, Proposal
from decoding.cost import CostModel
from decoding.draft import NO_DRAFT, Draft
from decoding.length import NOTHING, Option, best_affordable, options
from decoding.member import Member
from decoding.sampling import SamplingSettings
from decoding.union_tree import UnionTree, is_forked, union

_UNBOUNDED = float("inf")
_DRIFT_RATE = 0.1
_LARGEST_SURPRISE = 0.5
"""In log seconds; what met a busy machine must not count for more."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft and what it is expected to gain.

    refused: a token that would be drafted if more could be risked, None where nothing would.
    """

    draft: Draft = NO_DRAFT
    gain: float = 0.0
    refused: int | None = None


NO_OFFER = Offer()


class FreeDrafting:
    """Finds who is due, and compares what they propose and the union of it.

    members: those that draft for free. branches: the most leaves of a tree; 1 where the target
    verifies lines alone.
    """

    def __init__(
        self,
        members: Sequence[Member],
        costs: CostModel,
        n_vocab: int,
        branches: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._asking = [(member, Asking()) for member in members]
        self._costs = costs
        self._n_vocab = n_vocab
        self._most_branches = self._branches = branches
        self._clock = clock
        self._consensus = Consensus()
        self._step = 0
        self._next = 0
        """The first step at which one is due."""
        self._asked: Sequence[Member] = ()
        self._promising: list[Member] = []
        self._seconds = 0.0
        """What it takes to ask one and to learn from it; 0 until measured."""
        self._spent = 0.0

    def begin(self, settings: SamplingSettings) -> None:
        """A new reply; rules that may leave the target's distribution judge lines alone."""
        self._branches = 1 if settings.lossy_in_effect else self._most_branches
        for _, asking in self._asking:
            asking.begin()
        self._next = 0

    def due(self) -> Sequence[Member]:
        """Those that are worth asking at this step, the next one."""
        self._step += 1
        if self._step < self._next:
            self._asked = ()
            return ()
        return [
            member
            for member, asking in self._asking
            if asking.due <= self._step and not member.dropped
        ]

    def plan(
        self,
        due: Sequence[Member],
        history: Sequence[int],
        limit: int,
        rate: float,
        affordable: float,
    ) -> Offer:
        """The best draft of those that are due that can be afforded; all propose, sent or not.

        Nodes of a tree are limited as tokens of a line are.
        """
        started = self._clock()
        asked = [(member, member.propose(history, limit, self._n_vocab)) for member in due]
        drafts = [(member, draft) for member, draft in asked if draft.tokens]
        offer = self._best(drafts, limit, rate, affordable)
        self._asked = due
        self._spent = self._clock() - started
        return offer

    def _best(
        self, drafts: Sequence[tuple[Member, Draft]], limit: int, rate: float, affordable: float
    ) -> Offer:
        weighed = self._consensus.weighed(
            [
                Proposal(member.name, draft.tokens, member.estimates(draft))
                for member, draft in drafts
            ]
        )
        offer = NO_OFFER
        self._promising = []
        refused: int | None = None
        for (member, draft), line in zip(drafts, weighed, strict=True):
            found = options(line.acceptance, self._costs)
            plan = best_affordable(found, rate, affordable)
            if plan.gain > offer.gain:
                offer = Offer(draft.first(plan.length), plan.gain)
            if plan is NOTHING:
                if best_affordable(found, rate, _UNBOUNDED).length == 0:
                    continue
                refused = line.tokens[0]
            self._promising.append(member)
        if is_forked(weighed):
            tree = union(weighed, limit, self._branches)
            plan = best_affordable(self._options(tree), rate, affordable)
            if plan.gain > offer.gain:
                offer = Offer(tree.draft(plan.length), plan.gain)
        return Offer(offer.draft, offer.gain, refused)

    def learn(
        self, said: Sequence[int], sent: Collection[str], saved: float, seconds: float = 0.0
    ) -> None:
        """Judge the proposals of the last plan by what the model said.

        sent: whose tokens were verified. saved: plain steps that the step saved. seconds: what it
        took to learn from it before, which is part of the price of asking.
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
