"""The drafter of each step of a reply, which may change between steps."""

from collections.abc import Callable, Iterator, Sequence

from backends.base import PassStoppedError
from backends.base.pass_stop import pass_is_stopped
from decoding.draft import Drafter
from decoding.events import Step
from decoding.sampling.sampler import Sampler

DrafterProvider = Callable[[], Drafter | None]
"""Returns the drafter of the next step, None to decode plainly."""


def always(drafter: Drafter | None) -> DrafterProvider:
    """A provider of one drafter for the whole reply."""
    return lambda: drafter


class CurrentDrafter:
    """Asks a provider once per step; a drafter that takes over begins and reads first."""

    def __init__(self, provider: DrafterProvider, sampler: Sampler) -> None:
        self._provider = provider
        self._sampler = sampler
        self._drafter: Drafter | None = None

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Begin a reply to history and read it; yields tokens held after each chunk.

        The provider is asked after each too: a drafter whose place is taken meanwhile is closed,
        and must not go on.
        """
        while (drafter := self._provider()) is not None:
            self._drafter = drafter
            drafter.begin(history, self._sampler)
            for held in drafter.read(history):
                yield held
                if self._provider() is not drafter:
                    break
            else:
                return
        self._drafter = None

    def commit(self, history: Sequence[int]) -> Drafter | None:
        """The drafter of the next step, after it has taken in history; None to decode plainly.

        Raises:
            PassStoppedError: the reply was stopped while a drafter that takes over was reading.
        """
        drafter, previous = self._provider(), self._drafter
        self._drafter = drafter
        if drafter is not None:
            if drafter is not previous:
                drafter.begin(history, self._sampler)
                for _ in drafter.read(history):
                    if pass_is_stopped():
                        raise PassStoppedError
            drafter.commit(history)
        return drafter

    def rest(self) -> None:
        """Let the drafter settle its last draft: the reply has ended, however it did."""
        if self._drafter is not None:
            self._drafter.rest()

    def observe(self, step: Step) -> None:
        """Report a step to the drafter that was asked for its draft."""
        if self._drafter is not None:
            self._drafter.observe(step)
