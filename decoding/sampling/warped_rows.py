"""A model's rows of logits as next-token distributions."""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.base import Logits
from decoding.sampling.distribution import Distribution
from decoding.sampling.sampler import Sampler


class WarpedRows:
    """Distributions after history and after each prefix of drafted, warped on request."""

    def __init__(
        self, rows: Logits, sampler: Sampler, history: Sequence[int], drafted: Sequence[int]
    ) -> None:
        self._rows = rows
        self._sampler = sampler
        self._history = history
        self._drafted = drafted
        self.requested: list[Distribution] = []
        """The distributions requested so far, in order."""

    def __getitem__(self, i: int) -> Distribution:
        self.requested.append(
            self._sampler.distribution(self._rows[i], self._history, self._drafted[:i])
        )
        return self.requested[-1]


@dataclass(frozen=True, slots=True, eq=False)
class WarpedTreeRows:
    """Distributions after a path of nodes of a drafted tree; row 0 follows the history."""

    rows: Logits
    sampler: Sampler
    history: Sequence[int]
    drafted: Sequence[int]

    def __getitem__(self, path: Sequence[int]) -> Distribution:
        row = self.rows[1 + path[-1] if path else 0]
        return self.sampler.distribution(row, self.history, [self.drafted[node] for node in path])
