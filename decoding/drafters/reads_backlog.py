"""Of drafters whose model reads the history in a context of its own."""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from decoding.drafters.reader import Reader
from decoding.drafters.tree_reader import TreeReader
from decoding.events import Step
from decoding.sampler import Sampler
from decoding.sampling import SamplingSettings

ReaderT = TypeVar("ReaderT", Reader, TreeReader)


class ReadsBacklog(Generic[ReaderT]):
    """What was said since the last proposal is read before the next one, by a reader.

    Its context may hold rejected tokens of the last draft, or lack accepted ones; the next
    proposal brings it to the history first.
    """

    def __init__(self, reader: ReaderT) -> None:
        self._reader = reader
        self._sampler = Sampler(SamplingSettings())

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        """Draft with this sampler; history need not continue the one before."""
        self._sampler = sampler
        self._reader.begin(history)

    def commit(self, history: Sequence[int]) -> None:
        """Accepted tokens of the last draft need not be read again."""
        self._reader.commit(history)

    def observe(self, step: Step) -> None:
        """Nothing to learn: weights do not change."""

    def backlog(self, history: Sequence[int]) -> int:
        """Tokens it would have to read, the last of the history always among them."""
        return self._reader.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        """That its context is full."""
        return self._reader.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Read all of history; yields tokens held after each chunk."""
        return self._reader.read(history)
