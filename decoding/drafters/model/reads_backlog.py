"""Base of drafters whose model reads the history in a context of its own."""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from decoding.events import Step
from decoding.sampling.sampler import Sampler
from decoding.sampling.sampling_settings import SamplingSettings


class BacklogReader(Protocol):
    """Catches up a drafter's context with the history."""

    def begin(self, history: Sequence[int]) -> None:
        """Start with a history that need not continue the previous one."""
        ...

    def commit(self, history: Sequence[int]) -> None:
        """Take in which tokens of the last draft were accepted."""
        ...

    def backlog(self, history: Sequence[int]) -> int:
        """Number of tokens to read."""
        ...

    def refusal(self, history: Sequence[int]) -> str:
        """Why the context cannot take the history; empty if it can."""
        ...

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Read all of history; yields tokens held after each chunk."""
        ...

    def rest(self) -> None:
        """Leave nothing uncommitted in the context, which others may use next."""
        ...


ReaderT = TypeVar("ReaderT", bound=BacklogReader)


class ReadsBacklog(Generic[ReaderT]):
    """A drafter that reads what was emitted since its last proposal before the next one.

    Its context may hold rejected tokens of the last draft, or lack accepted ones, until the next
    proposal catches up.
    """

    def __init__(self, reader: ReaderT) -> None:
        self._reader = reader
        self._sampler = Sampler(SamplingSettings())

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        """Draft with this sampler; history need not continue the previous one."""
        self._sampler = sampler
        self._reader.begin(history)

    def commit(self, history: Sequence[int]) -> None:
        """Mark history as final; accepted tokens of the last draft are not read again."""
        self._reader.commit(history)

    def observe(self, step: Step) -> None:
        """Nothing to learn: weights do not change."""

    def rest(self) -> None:
        """Settle the last draft."""
        self._reader.rest()

    def backlog(self, history: Sequence[int]) -> int:
        """Number of tokens to read; the last one of the history always counts."""
        return self._reader.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        """Why it cannot draft: its context is full; empty if it can."""
        return self._reader.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Read all of history; yields tokens held after each chunk."""
        return self._reader.read(history)
