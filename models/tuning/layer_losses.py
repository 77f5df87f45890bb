"""Acceptance lost by skipping layers: measured for tried sets, estimated for others.

A loss is the negative logarithm of the remaining acceptance, and is assumed to be additive: of the
bundled model's runs of two to eight layers half lose within 40 % of the sum for single layers, and
of sets of separate layers nearly all within 30 %.
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
"""Weight of the assumption that losses are additive, in tried sets."""


class LayerLosses:
    """Losses of a model's layers, whatever else a recipe changes.

    A tried run of layers has its measured loss; any other the least sum of tried runs that compose
    it, times the average factor seen so far for joined runs. Separate runs add up likewise.
    """

    def __init__(self, n_layers: int) -> None:
        self._tried = np.full((n_layers, n_layers), np.inf)
        self._parts = self._tried.copy()
        self._joined: list[float] = []
        self._apart: list[float] = []

    def learn(self, skipped: Skipped, share: float) -> None:
        """Record the acceptance without some layers, relative to that with all."""
        loss = max(-math.log(max(share, _LEAST_SHARE)), 0.0)
        skipped_runs = runs(skipped)
        if len(skipped_runs) > 1:
            _add(self._apart, loss, sum(map(self._guess, skipped_runs)))
            return
        first, last = skipped_runs[0]
        if first < last:
            _add(self._joined, loss, self._parts[first, last])
        self._tried[first, last] = loss
        self._parts = _cheapest_parts(self._tried)

    def share(self, skipped: Skipped, hope: float = 1.0) -> float:
        """Estimated remaining acceptance, relative; 0.0 with a layer never tried.

        hope: factor on the estimated loss.
        """
        skipped_runs = runs(skipped)
        loss = sum(map(self._guess, skipped_runs))
        return math.exp(-hope * loss * (_factor(self._apart) if len(skipped_runs) > 1 else 1.0))

    def cheapest(self) -> Iterator[Skipped]:
        """Set of each size with the least estimated loss; at least one layer is kept."""
        joined = _factor(self._joined)
        known = np.isfinite(self._tried)
        yield from cheapest_sets(np.where(known, self._tried, joined * self._parts))

    def every_run(self) -> Iterator[Skipped]:
        """All runs of layers that keep at least one layer."""
        n_layers = len(self._tried)
        for first in range(n_layers):
            for last in range(first, n_layers - (first == 0)):
                yield tuple(range(first, last + 1))

    def _guess(self, run: tuple[int, int]) -> float:
        known = float(self._tried[run])
        return known if math.isfinite(known) else _factor(self._joined) * float(self._parts[run])


def _cheapest_parts(tried: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least sum of tried runs that compose each run, shape (n_layers, n_layers)."""
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


def _factor(factors: list[float]) -> float:
    """Average ratio of measured to summed losses, with a prior of 1."""
    return statistics.fmean([1.0] * _WEIGHT + factors)
