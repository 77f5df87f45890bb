"""A model's rows of logits as next-token distributions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.base import Logits, ModelError
from decoding.sampling.distribution import Distribution, point_mass
from decoding.sampling.sampler import Sampler

NOTHING = -1
"""In place of the token after a text that none can follow, as its row or the grammar fails.

A failure is so one more outcome, which nobody drafts: a rule accepts nothing beyond it, and it is
drawn only where the verdict ends there.
"""


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
        row, drafted = self._rows[i], self._drafted[:i]
        self.requested.append(_distribution(self._sampler, row, self._history, drafted))
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
        drafted = [self.drafted[node] for node in path]
        return _distribution(self.sampler, row, self.history, drafted)


def _distribution(
    sampler: Sampler, row: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int]
) -> Distribution:
    try:
        return sampler.distribution(row, history, drafted)
    except ModelError:
        return point_mass(NOTHING)
