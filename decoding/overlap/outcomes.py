"""Outcomes of a verification, the likeliest first: tokens kept, and the token that follows."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MISS_EXPONENT = 1.0
"""r of the power law F^-r by which the token after the kept ones is none of the drafter's F
likeliest. A guess; not measured."""

_LEAST = 0.02
"""Distance that acceptance keeps from 0 and 1 here, so that no outcome counts as impossible. A
guess; not measured."""

MOST_CANDIDATES = 8
"""Most candidates for the token after the kept ones, at one position. A guess; not measured."""

MOST_OUTCOMES = 32
"""Most outcomes of one verification that are drafted for. A guess; not measured."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The first kept tokens of a draft, then the drafter's candidate of this rank, from 0."""

    kept: int
    rank: int


def likeliest_outcomes(
    acceptance: Sequence[float], exponent: float = _MISS_EXPONENT
) -> Iterator[Outcome]:
    """Outcomes of verifying a draft, by their share of avoided misses, largest first.

    acceptance: of each drafted token, given that all before it are accepted. The candidate of rank
    f avoids f^-r - (f+1)^-r of the misses after k kept tokens, which is about r f^-(1+r). Taken in
    this order, position k has F_k candidates in proportion to P(k)^(1/(1+r)) however many outcomes
    there is time for: the fan-out of Kumar, Dao and May 2026 (arXiv 2603.03251), which is optimal
    under that law.
    """
    weights = kept_distribution(acceptance)
    waiting = [(-weight, kept, 0) for kept, weight in enumerate(weights)]
    heapq.heapify(waiting)
    for _ in range(MOST_OUTCOMES):
        if not waiting:
            return
        _, kept, rank = waiting[0]
        yield Outcome(kept, rank)
        if rank + 1 < MOST_CANDIDATES:
            weight = weights[kept] * (rank + 2) ** -(1.0 + exponent)
            heapq.heapreplace(waiting, (-weight, kept, rank + 1))
        else:
            heapq.heappop(waiting)


def kept_distribution(acceptance: Sequence[float]) -> list[float]:
    """Probability that exactly the first k tokens are kept, for k from none to all."""
    joint, chances = 1.0, list[float]()
    for share in acceptance:
        bounded = min(max(share, _LEAST), 1.0 - _LEAST)
        chances.append(joint * (1.0 - bounded))
        joint *= bounded
    return [*chances, joint]
