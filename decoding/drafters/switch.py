"""A drafter that can be exchanged for another in the middle of a reply."""

from collections.abc import Callable, Iterator, Sequence

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn
from decoding.sampler import Sampler


class Switch:
    """Hands every call on to the drafter that current gives, which begins where it takes over.

    current: gives the drafter of the next step, None to draft nothing.
    """

    name = "switch"
    is_free = False

    def __init__(self, current: Callable[[], Drafter | None]) -> None:
        self._current = current
        self._begun: Drafter | None = None
        self._sampler: Sampler | None = None

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler
        self._begun = None
        self._ready(history)

    def _ready(self, history: Sequence[int]) -> Drafter | None:
        """The drafter of this step, begun if it is not the one of the step before."""
        drafter = self._current()
        if drafter is not self._begun:
            self._begun = drafter
            if drafter is not None and self._sampler is not None:
                drafter.begin(history, self._sampler)
        return drafter

    def _take_over(self, history: Sequence[int]) -> Drafter | None:
        """The same in mid-reply, where nobody else lets a new drafter read what was said."""
        before = self._begun
        drafter = self._ready(history)
        if drafter is not None and drafter is not before:
            for _ in drafter.read(history):
                pass
        return drafter

    def backlog(self, history: Sequence[int]) -> int:
        drafter = self._ready(history)
        return drafter.backlog(history) if drafter else 0

    def refusal(self, history: Sequence[int]) -> str:
        drafter = self._ready(history)
        return drafter.refusal(history) if drafter else ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        drafter = self._ready(history)
        return drafter.read(history) if drafter else iter(())

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        drafter = self._ready(history)
        return drafter.propose(history, limit, keep_on) if drafter else NO_DRAFT

    def commit(self, history: Sequence[int]) -> None:
        drafter = self._take_over(history)
        if drafter:
            drafter.commit(history)
