"""Siblings of a sampled tree: tokens sampled without replacement."""

from collections.abc import Iterator

import numpy as np

from decoding.sampling.distribution import Distribution, uniform


def without_replacement(
    distribution: Distribution, generator: np.random.Generator
) -> Iterator[int]:
    """Tokens sampled without replacement, until none has any probability left."""
    left = distribution.probabilities.copy()
    while (total := left.sum()) > 0.0:
        token = Distribution(distribution.ids, left / total).draw(uniform(generator))
        yield token
        left[distribution.ids.searchsorted(token)] = 0.0
