"""What the drafters that take no time propose, as the one draft that gains most."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.consensus import Consensus, Proposal
from decoding.cost import CostModel
from decoding.draft import NO_DRAFT, Draft
from decoding.length import NOTHING, Option, best_length, best_of, reachable
from decoding.member import Member
from decoding.union_tree import UnionTree, union

_UNBOUNDED = float("inf")


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft and what it is expected to gain.

    refused: a token that would be drafted if more could be risked, None where nothing would.
    """

    draft: Draft = NO_DRAFT
    gain: float = 0.0
    refused: int | None = None


class FreeDrafting:
    """Compares the proposals and, where the target can verify trees, the union of them.

    branches: the most leaves of a tree; 1 where the target verifies lines alone.
    """

    def __init__(self, costs: CostModel, n_vocab: int, branches: int) -> None:
        self._costs = costs
        self._n_vocab = n_vocab
        self._branches = branches
        self._consensus = Consensus()
        self._proposals: list[Proposal] = []

    def plan(
        self,
        members: Sequence[Member],
        history: Sequence[int],
        limit: int,
        rate: float,
        affordable: float,
    ) -> Offer:
        """The best draft that can be afforded; every member proposes, sent or not.

        Nodes of a tree are limited as tokens of a line are.
        """
        drafts = {member.name: member.propose(history, limit, self._n_vocab) for member in members}
        self._proposals = [
            Proposal(member.name, draft.tokens, member.estimates(draft))
            for member in members
            if (draft := drafts[member.name]).tokens
        ]
        offer = Offer()
        refused: int | None = None
        for line in self._proposals:
            acceptance = self._acceptance(line)
            plan = best_length(acceptance, self._costs, rate=rate, affordable=affordable)
            if plan.gain > offer.gain:
                offer = Offer(drafts[line.drafter].first(plan.length), plan.gain)
            if plan is NOTHING and self._would_pay(acceptance, rate):
                refused = line.tokens[0]
        if self._has_choice:
            tree = self._tree(limit, rate, affordable, offer.gain)
            offer = tree or offer
        return Offer(offer.draft, offer.gain, refused)

    def learn(self, said: Sequence[int]) -> None:
        """Judge the proposals of the last plan by what the model said."""
        if self._branches > 1:
            self._consensus.learn(self._proposals, said)
        self._proposals = []

    @property
    def _has_choice(self) -> bool:
        return self._branches > 1 and len(self._proposals) > 1

    def _acceptance(self, line: Proposal) -> Sequence[float]:
        if not self._has_choice:
            return line.acceptance
        return self._consensus.along(line, self._proposals)

    def _would_pay(self, acceptance: Sequence[float], rate: float) -> bool:
        return best_length(acceptance, self._costs, rate=rate, affordable=_UNBOUNDED).length > 0

    def _tree(self, limit: int, rate: float, affordable: float, least: float) -> Offer | None:
        """The best part of the union, if it gains more than least."""
        tree = union(self._proposals, self._consensus, limit, self._branches)
        options = [one for one in self._options(tree) if one[2] <= affordable]
        plan = best_of(options, reachable(options, rate))
        if plan.gain <= least:
            return None
        return Offer(tree.draft(plan.length), plan.gain)

    def _options(self, tree: UnionTree) -> list[Option]:
        chain = tree.chain
        expected = 0.0
        options: list[Option] = []
        for count, together in enumerate(tree.together, start=1):
            expected += together
            cost = self._costs.of_draft(count) if count <= chain else self._costs.of_tree(count)
            options.append((count, expected, cost))
        return options
