"""A model's rows of logits as the distributions of what it says next."""

from collections.abc import Sequence

from backends.base import Logits
from decoding.sampler import Sampler
from decoding.sampling import Distribution


class WarpedRows:
    """Warps the row after history, or after some of drafted, when it is asked for, not before."""

    def __init__(
        self, rows: Logits, sampler: Sampler, history: Sequence[int], drafted: Sequence[int]
    ) -> None:
        self._rows = rows
        self._sampler = sampler
        self._history = history
        self._drafted = drafted
        self.asked: list[Distribution] = []
        """What was asked for, in order."""

    def __getitem__(self, i: int) -> Distribution:
        self.asked.append(
            self._sampler.distribution(self._rows[i], self._history, self._drafted[:i])
        )
        return self.asked[-1]
