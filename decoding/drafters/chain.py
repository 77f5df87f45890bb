"""A chain of drafters in order of preference."""

from collections.abc import Sequence

from decoding.draft import NO_DRAFT, Draft, Drafter
from decoding.sampler import Sampler


class Chain:
    """Proposes what the first of its drafters with something to say proposes."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.name = ",".join(drafter.name for drafter in drafters)
        self._drafters = tuple(drafters)

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        for drafter in self._drafters:
            drafter.begin(history, sampler)

    def commit(self, history: Sequence[int]) -> None:
        for drafter in self._drafters:
            drafter.commit(history)

    def propose(self, history: Sequence[int], limit: int) -> Draft:
        for drafter in self._drafters:
            draft = drafter.propose(history, limit)
            if draft.tokens:
                return draft
        return NO_DRAFT
