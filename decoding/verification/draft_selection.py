"""Selection of one of several independently sampled lines, with its exact distribution.

The lines are ordered lexicographically, with the tokens ranked anew after every prefix, and the
last one is selected. As nested intervals of [0, 1), lines are sampled by a uniform number; the
highest of k numbers lies below b with probability b^k. So with the interval [a, b) of a prefix and
[a(x), b(x)) of the prefix followed by x, token x of the selected line has the probability
(b(x)^k - a(x)^k) / (b^k - a^k). Verified against that distribution, it is a line like any other.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from decoding.sampling.distribution import Distribution

DistributionAfter = Callable[[tuple[int, ...]], Distribution]
"""The q_draft after a drafted prefix."""

Rank = Callable[[tuple[int, ...], Distribution], NDArray[np.int64]]
"""The ids of the q_draft after a prefix, from lowest to highest, whatever was sampled."""


def select(
    lines: Sequence[Sequence[int]], q_draft_after: DistributionAfter, rank: Rank
) -> tuple[int, tuple[Distribution, ...]]:
    """Index of the selected line, and the distribution of each of its tokens given the selection.

    lines: each token was sampled from q_draft_after those before it; whether a line goes on
    depends on these alone. Only prefixes of the selected line are looked up.
    """
    candidates = list(range(len(lines)))
    prefix: tuple[int, ...] = ()
    below, width = 0.0, 1.0  # the interval is [below, below + width), scaled to end at 1
    selected: list[Distribution] = []
    while any(len(lines[index]) > len(prefix) for index in candidates):
        assert all(len(lines[index]) > len(prefix) for index in candidates), (
            "equal lines end together"
        )
        q_draft = q_draft_after(prefix)
        places = q_draft.ids.searchsorted(rank(prefix, q_draft))
        ranked = q_draft.probabilities[places]
        ends = below + width * ranked.cumsum()
        starts = np.concatenate(([below], ends[:-1]))
        selected.append(_reweighted(q_draft, places, ranked * _spread(starts, ends, len(lines))))

        tokens = q_draft.ids[places]
        rank_of = {
            index: int((tokens == lines[index][len(prefix)]).argmax()) for index in candidates
        }
        highest = max(rank_of.values())
        candidates = [index for index in candidates if rank_of[index] == highest]
        prefix = (*prefix, int(tokens[highest]))
        below, width = float(starts[highest]), width * float(ranked[highest])
        below, width = below / (below + width), width / (below + width)
    return candidates[0], tuple(selected)


def _reweighted(
    q_draft: Distribution, places: NDArray[np.intp], weights: NDArray[np.float64]
) -> Distribution:
    """The distribution of weights given in the order of places of q_draft."""
    probabilities = np.empty_like(weights)
    probabilities[places] = weights
    return Distribution(q_draft.ids, probabilities / probabilities.sum())


def _spread(
    starts: NDArray[np.float64], ends: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """(ends^count - starts^count) / (ends - starts) as a sum, free of cancellation."""
    total = power = np.ones_like(starts)
    for _ in range(count - 1):
        power = power * starts
        total = total * ends + power
    return total
