"""What skipping layers costs in acceptance: learned from sets that were tried, guessed for others.

A loss is the negative logarithm of the acceptance that is left, and is taken to add up: of the
bundled model's runs of two to eight layers half lose within 40 % of what their layers lose alone,
and of sets of layers that lie apart nearly all within 30 %.
"""

import math
import statistics
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.self_draft.recipe import Skipped, runs
from models.tuning.layer_knapsack import cheapest_sets

_LEAST_SHARE = 1e-3
_WEIGHT = 3
"""How many sets the additivity of losses counts for before any was tried."""


class LayerLosses:
    """Losses of one model's layers, for whatever else is changed in it.

    A run of layers that was tried has its own loss; another one that of the tried runs it can be
    made of, the cheapest way, times what joining runs changed so far. Runs with kept layers between
    them add up likewise.
    """

    def __init__(self, n_layers: int) -> None:
        self._tried = np.full((n_layers, n_layers), np.inf)
        self._parts = self._tried.copy()
        self._joined: list[float] = []
        self._apart: list[float] = []

    def learn(self, skipped: Skipped, share: float) -> None:
        """Take in the acceptance without some layers, as a share of what it is with all."""
        loss = max(-math.log(max(share, _LEAST_SHARE)), 0.0)
        found = runs(skipped)
        if len(found) > 1:
            _add(self._apart, loss, sum(map(self._guess, found)))
            return
        first, last = found[0]
        if first < last:
            _add(self._joined, loss, self._parts[first, last])
        self._tried[first, last] = loss
        self._parts = _cheapest_parts(self._tried)

    def share(self, skipped: Skipped, hope: float = 1.0) -> float:
        """What may be left of the acceptance; 0.0 with a layer never tried.

        hope: the share of the guessed loss that there is in fact.
        """
        found = runs(skipped)
        loss = sum(map(self._guess, found))
        return math.exp(-hope * loss * (_factor(self._apart) if len(found) > 1 else 1.0))

    def cheapest(self) -> Iterator[Skipped]:
        """The set of each size that is taken to lose least; at least one layer is kept."""
        joined = _factor(self._joined)
        known = np.isfinite(self._tried)
        yield from cheapest_sets(np.where(known, self._tried, joined * self._parts))

    def every_run(self) -> Iterator[Skipped]:
        """Each run of layers; at least one layer is kept."""
        n_layers = len(self._tried)
        for first in range(n_layers):
            for last in range(first, n_layers - (first == 0)):
                yield tuple(range(first, last + 1))

    def _guess(self, run: tuple[int, int]) -> float:
        known = float(self._tried[run])
        return known if math.isfinite(known) else _factor(self._joined) * float(self._parts[run])


def _cheapest_parts(tried: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least sum of tried runs that make up a run, shape (n_layers, n_layers)."""
    count = len(tried)
    parts = tried.copy()
    for length in range(2, count + 1):
        for first in range(count - length + 1):
            last = first + length - 1
            if np.isinf(parts[first, last]):
                cut = parts[first, first:last] + parts[first + 1 : last + 1, last]
                parts[first, last] = cut.min()
    return parts


def _add(factors: list[float], loss: float, expected: float) -> None:
    if 0.0 < expected < math.inf:
        factors.append(loss / expected)


def _factor(found: list[float]) -> float:
    """By which sums come out otherwise; a few sets are wanted to tell."""
    return statistics.fmean([1.0] * _WEIGHT + found)
