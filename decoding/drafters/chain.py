"""A chain of drafters in order of preference, each at a fixed length."""

from collections.abc import Iterator, Sequence

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn
from decoding.sampler import Sampler


class Chain:
    """Proposes what the first of its drafters with something to say proposes.

    It asks what nothing costs: how `specchat verify` and the tests draft as much as they can.
    """

    is_free = False

    def __init__(self, drafters: Sequence[Drafter], max_draft: int = 4) -> None:
        self.name = ",".join(drafter.name for drafter in drafters)
        self._drafters = tuple(drafters)
        self._max_draft = max_draft

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        for drafter in self._drafters:
            drafter.begin(history, sampler)

    def backlog(self, history: Sequence[int]) -> int:
        return max(drafter.backlog(history) for drafter in self._drafters)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        for drafter in self._drafters:
            yield from drafter.read(history)

    def commit(self, history: Sequence[int]) -> None:
        for drafter in self._drafters:
            drafter.commit(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        for drafter in self._drafters:
            draft = drafter.propose(history, min(limit, self._max_draft), keep_on)
            if draft.tokens:
                return draft
        return NO_DRAFT
