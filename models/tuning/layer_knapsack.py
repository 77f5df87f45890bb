"""Best set of layers to skip, for each number of layers: a knapsack over runs."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.self_draft.recipe import Skipped


def cheapest_sets(losses: NDArray[np.float64]) -> Iterator[Skipped]:
    """Set of each size with the least loss, by dynamic programming over the layers.

    losses: of skipping layers first to last together, shape (n_layers, n_layers); losses of runs
    with a kept layer between them add up. At least one layer is kept.
    """
    count = len(losses)
    least = np.full((count + 2, count + 1), np.inf)  # by layers considered and number skipped
    least[:2, 0] = 0.0  # as if a kept layer preceded the first
    run = np.zeros(
        (count + 2, count + 1), dtype=int
    )  # length of the run that ends there, 0 for a kept layer
    for end in range(1, count + 1):
        least[end + 1] = least[end]
        for length in range(1, end + 1):
            first = end - length
            loss = least[first, : count + 1 - length] + losses[first, end - 1]
            better = loss < least[end + 1, length:]
            least[end + 1, length:][better] = loss[better]
            run[end + 1, length:][better] = length
    for size in range(1, count):
        if np.isfinite(least[-1, size]):
            yield _traced(run, size)


def _traced(run: NDArray[np.int_], size: int) -> Skipped:
    skipped: list[int] = []
    end = len(run) - 1
    while size:
        length = int(run[end, size])
        skipped += range(end - 1 - length, end - 1)
        size -= length
        end -= length + 1 if length else 1
    return tuple(sorted(skipped))
