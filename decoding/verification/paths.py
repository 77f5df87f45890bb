"""One of several lines that were drawn independently, and the law of the one that was chosen.

The lines are put in the order of a dictionary whose letters are ranked anew after every prefix, and
the last one is chosen. As intervals of [0, 1), nested like prefixes, lines are drawn by a uniform
number; of k numbers the highest lies below b with probability b^k. So with the interval [a, b) of a
prefix and [a(x), b(x)) of the same prefix with x, token x of the chosen line has the law
(b(x)^k - a(x)^k) / (b^k - a^k). Judged against that law, it is a line like any other.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from decoding.sampling import Distribution

Laws = Callable[[tuple[int, ...]], Distribution]
"""The q_draft after a drafted prefix."""

Rank = Callable[[tuple[int, ...], Distribution], NDArray[np.int64]]
"""The ids of the q_draft after a drafted prefix, from lowest to highest, whatever was drawn."""


def choose(
    paths: Sequence[Sequence[int]], laws: Laws, rank: Rank
) -> tuple[int, tuple[Distribution, ...]]:
    """The index of the line chosen, and the distribution each of its tokens has for that.

    paths: each token drawn from laws of those before it; whether a line goes on is decided by
    these alone. Only prefixes of the chosen line are asked for.
    """
    standing = list(range(len(paths)))
    prefix: tuple[int, ...] = ()
    below, width = 0.0, 1.0  # the interval is [below, below + width), scaled to end at 1
    found: list[Distribution] = []
    while any(len(paths[one]) > len(prefix) for one in standing):
        assert all(len(paths[one]) > len(prefix) for one in standing), "alike, but one goes on"
        law = laws(prefix)
        places = law.ids.searchsorted(rank(prefix, law))
        q_draft = law.probabilities[places]
        upper = q_draft.cumsum()
        ends = below + width * upper
        starts = np.concatenate(([below], ends[:-1]))
        found.append(_reweighted(law, places, q_draft * _spread(starts, ends, len(paths))))

        tokens = law.ids[places]
        ranked = {one: int((tokens == paths[one][len(prefix)]).argmax()) for one in standing}
        highest = max(ranked.values())
        standing = [one for one in standing if ranked[one] == highest]
        prefix = (*prefix, int(tokens[highest]))
        below, width = float(starts[highest]), width * float(q_draft[highest])
        below, width = below / (below + width), width / (below + width)
    return standing[0], tuple(found)


def _reweighted(
    law: Distribution, places: NDArray[np.intp], weights: NDArray[np.float64]
) -> Distribution:
    """weights, given in the order of places of the law, as a distribution."""
    probabilities = np.empty_like(weights)
    probabilities[places] = weights
    return Distribution(law.ids, probabilities / probabilities.sum())


def _spread(
    starts: NDArray[np.float64], ends: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """(ends^count - starts^count) / (ends - starts) as a sum, in which nothing cancels out."""
    total = power = np.ones_like(starts)
    for _ in range(count - 1):
        power = power * starts
        total = total * ends + power
    return total
