"""Cost of a draft token by number of skipped layers: a line fitted to measurements."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True, slots=True)
class CostLine:
    """Fitted line. whole: cost with every layer, in plain steps; layer: share per layer."""

    whole: float
    layer: float

    @classmethod
    def through(cls, measured: Mapping[int, Sequence[float]], n_layers: int) -> Self | None:
        """Fit costs by number of skipped layers, None with too few measurements.

        Uses the median of equal numbers, as other load may have slowed single passes.
        """
        skipped = sum(count * len(costs) for count, costs in measured.items())
        if len(measured) < 2 or skipped < n_layers:
            return None
        counts = list(measured)
        medians = [statistics.median(measured[count]) for count in counts]
        weights = [len(measured[count]) ** 0.5 for count in counts]
        slope, whole = map(float, np.polyfit(counts, medians, 1, w=weights))
        if whole <= 0.0 or slope >= 0.0:
            return cls(statistics.fmean(medians), 0.0)
        return cls(whole, min(-slope / whole, 1.0 / n_layers))

    def of(self, skipped: int) -> float:
        """Cost of a token with so many layers skipped, in plain steps."""
        return self.whole * (1.0 - self.layer * skipped)
