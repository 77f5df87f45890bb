"""What the drafters that take no time propose, as the one draft that gains most."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.consensus import Consensus, Proposal
from decoding.cost import CostModel
from decoding.draft import NO_DRAFT, Draft
from decoding.length import NOTHING, Option, best_length, best_of, reachable
from decoding.member import Member
from decoding.sampling import SamplingSettings
from decoding.union_tree import UnionTree, is_forked, union

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
    """Compares the proposals and the union of them.

    branches: the most leaves of a tree; 1 where the target verifies lines alone.
    """

    def __init__(self, costs: CostModel, n_vocab: int, branches: int) -> None:
        self._costs = costs
        self._n_vocab = n_vocab
        self._most_branches = self._branches = branches
        self._consensus = Consensus()

    def begin(self, settings: SamplingSettings) -> None:
        """A new reply; rules that may leave the target's distribution judge lines alone."""
        self._branches = 1 if settings.lossy_in_effect else self._most_branches

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
        asked = [(member, member.propose(history, limit, self._n_vocab)) for member in members]
        drafts = [(member, draft) for member, draft in asked if draft.tokens]
        weighed = self._consensus.weighed(
            [
                Proposal(member.name, draft.tokens, member.estimates(draft))
                for member, draft in drafts
            ]
        )
        offer = Offer()
        refused: int | None = None
        for (_, draft), line in zip(drafts, weighed, strict=True):
            plan = best_length(line.acceptance, self._costs, rate=rate, affordable=affordable)
            if plan.gain > offer.gain:
                offer = Offer(draft.first(plan.length), plan.gain)
            if plan is NOTHING and self._would_pay(line.acceptance, rate):
                refused = line.tokens[0]
        if is_forked(weighed):
            tree = union(weighed, limit, self._branches)
            offer = self._of_union(tree, rate, affordable, offer)
        return Offer(offer.draft, offer.gain, refused)

    def learn(self, said: Sequence[int]) -> None:
        """Judge the proposals of the last plan by what the model said."""
        self._consensus.learn(said)

    def _would_pay(self, acceptance: Sequence[float], rate: float) -> bool:
        return best_length(acceptance, self._costs, rate=rate, affordable=_UNBOUNDED).length > 0

    def _of_union(self, tree: UnionTree, rate: float, affordable: float, best: Offer) -> Offer:
        """The best part of the union, if it gains more than the best line."""
        options = [one for one in self._options(tree) if one[2] <= affordable]
        plan = best_of(options, reachable(options, rate))
        if plan.gain <= best.gain:
            return best
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
