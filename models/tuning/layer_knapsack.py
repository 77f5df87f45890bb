"""Which layers to skip of any number: a knapsack over runs of layers."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.self_draft.recipe import Skipped


def cheapest_sets(losses: NDArray[np.float64]) -> Iterator[Skipped]:
    """The set of each size with the least loss, by dynamic programming over the layers.

    losses: of skipping first to last together, shape (n_layers, n_layers); the losses of runs with
    a kept layer between them add up. At least one layer is kept.
    """
    count = len(losses)
    least = np.full((count + 2, count + 1), np.inf)  # by layers looked at, and how many skipped
    least[:2, 0] = 0.0  # a kept layer, that is none, before the first
    run = np.zeros((count + 2, count + 1), dtype=int)  # the run that ends there; 0: it is kept
    for end in range(1, count + 1):
        least[end + 1] = least[end]
        for length in range(1, end + 1):
            first = end - length
            found = least[first, : count + 1 - length] + losses[first, end - 1]
            better = found < least[end + 1, length:]
            least[end + 1, length:][better] = found[better]
            run[end + 1, length:][better] = length
    for size in range(1, count):
        if np.isfinite(least[-1, size]):
            yield _traced(run, size)


def _traced(run: NDArray[np.int_], size: int) -> Skipped:
    found: list[int] = []
    end = len(run) - 1
    while size:
        length = int(run[end, size])
        found += range(end - 1 - length, end - 1)
        size -= length
        end -= length + 1 if length else 1
    return tuple(sorted(found))
