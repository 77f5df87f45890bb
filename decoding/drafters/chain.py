"""A chain of drafters in order of preference, each at a fixed length."""

from collections.abc import Iterator, Sequence

from decoding.consensus import Consensus, Proposal
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, refusal_of_all
from decoding.events import Step
from decoding.sampler import Sampler
from decoding.union_tree import is_forked, union


class Chain:
    """Proposes what the first of its drafters with something to say proposes.

    Where that is a free one, what the free ones after it say is put beside it as a tree. Those that
    are not take turns, as each has always something to say. It asks what nothing costs: how
    measurements at a fixed length and the tests draft. branches: the most of such a tree, 1
    for none.
    """

    is_free = False

    def __init__(self, drafters: Sequence[Drafter], max_draft: int = 4, branches: int = 1) -> None:
        self.name = ",".join(drafter.name for drafter in drafters)
        self._drafters = tuple(drafters)
        self._max_draft = max_draft
        self._most_branches = self._branches = branches
        self._steps = 0

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        # Rules that may leave the target's distribution judge lines alone.
        self._branches = 1 if sampler.settings.lossy_in_effect else self._most_branches
        for drafter in self._drafters:
            drafter.begin(history, sampler)

    def backlog(self, history: Sequence[int]) -> int:
        return max(drafter.backlog(history) for drafter in self._drafters)

    def refusal(self, history: Sequence[int]) -> str:
        return refusal_of_all(self._drafters, history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        for drafter in self._drafters:
            yield from drafter.read(history)

    def commit(self, history: Sequence[int]) -> None:
        for drafter in self._drafters:
            drafter.commit(history)

    def observe(self, step: Step) -> None:
        for drafter in self._drafters:
            drafter.observe(step)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        longest = min(limit, self._max_draft)
        drafters = self._in_turn()
        for place, drafter in enumerate(drafters):
            draft = drafter.propose(history, longest, keep_on)
            if draft.tokens:
                if not drafter.is_free or self._branches == 1:
                    return draft
                others = [one for one in drafters[place + 1 :] if one.is_free]
                further = [one.propose(history, longest) for one in others]
                return self._beside(draft, further, limit)
        return NO_DRAFT

    def _in_turn(self) -> list[Drafter]:
        """In their order, but another one that is not free at the head of those at each step."""
        dear = [drafter for drafter in self._drafters if not drafter.is_free]
        first = self._steps % max(len(dear), 1)
        self._steps += 1
        turned = iter([*dear[first:], *dear[:first]])
        return [drafter if drafter.is_free else next(turned) for drafter in self._drafters]

    def _beside(self, draft: Draft, others: Sequence[Draft], limit: int) -> Draft:
        """The draft and others as a tree of at most so many tokens, where they differ."""
        drafts = [draft, *(one for one in others if one.tokens)]
        lines = Consensus().weighed(
            [Proposal(one.drafter, one.tokens, one.confidence) for one in drafts]
        )
        if not is_forked(lines):
            return draft
        tree = union(lines, limit, self._branches)
        return tree.draft(len(tree.tokens))
