"""Which tokens top-k, top-p and min-p leave of a row of logits."""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_NUCLEUS_START = 256

Left = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The tokens that are left, ascending, and how far the logit of each is below the highest."""


class Borders(Protocol):
    """As decoding.sampling.SamplingSettings has them."""

    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...


def within_borders(logits: NDArray[np.float32], highest: float, borders: Borders) -> Left:
    """What is left of logits, shape (n_vocab,), the highest of which is finite and given."""
    return _likeliest(logits, highest, borders) or _cut(logits, highest, borders)


def _likeliest(logits: NDArray[np.float32], highest: float, borders: Borders) -> Left | None:
    """What _cut gives, where min-p alone settles it; None elsewhere.

    If what is above min-p is no more than top-k, and holds less than top-p of its own mass without
    the least of it, both leave all of it, whatever the rest may hold. That settles 102 of 160 rows
    of the bundled model at the usual settings, and takes 0.16 ms on average instead of 0.25.
    """
    if borders.min_p <= 0.0:
        return None
    slack = 1e-3 + 1e-6 * abs(highest)  # for rounding to float32: what it lets in is judged below
    ids = np.flatnonzero(logits >= highest + math.log(borders.min_p) - slack)
    if len(ids) > (borders.top_k or len(logits)):
        return None
    scores = logits[ids].astype(np.float64) - highest
    if len(ids) == 1:
        return ids, scores
    probabilities = np.exp(scores)
    enough = probabilities >= borders.min_p
    if not enough.all():
        ids, scores, probabilities = ids[enough], scores[enough], probabilities[enough]
    mass = float(probabilities.sum())
    if mass - float(probabilities.min()) >= borders.top_p * mass:
        return None
    return ids, scores


def _cut(logits: NDArray[np.float32], highest: float, borders: Borders) -> Left:
    """By all three borders, one after another."""
    ids, scores = _most_likely(logits, borders.top_k)
    scores -= highest
    kept = _kept(np.exp(scores), borders)
    return (ids, scores) if kept is None else (ids[kept], scores[kept])


def _most_likely(
    logits: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The count highest logits with their ids, ascending by id; all of them for count 0.

    Ties at the border are kept in the order of ids.
    """
    n_vocab = len(logits)
    if count <= 0 or count >= n_vocab:
        return np.arange(n_vocab), logits.astype(np.float64)
    candidates = _above_threshold(logits, count)
    values = logits[candidates]
    surplus = len(candidates) - count
    if surplus > 0:
        order = np.argsort(-values, kind="stable")[:count]
        order.sort()
        candidates, values = candidates[order], values[order]
    return candidates, values.astype(np.float64)


def _above_threshold(logits: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Ids of a superset of the count highest logits, small where the vocabulary is large.

    The count-th highest of the maxima of disjoint groups is no higher than the count-th highest of
    all; strided groups let the maxima be taken row by row, far faster than a partition of all.
    """
    groups = len(logits) // 64
    if groups < 2 * count:
        threshold = np.partition(logits, -count)[-count]
    else:
        maxima = logits[: 64 * groups].reshape(64, groups).max(axis=0)
        threshold = np.partition(maxima, -count)[-count]
    return np.flatnonzero(logits >= threshold)


def _kept(probabilities: NDArray[np.float64], borders: Borders) -> NDArray[np.intp] | None:
    """Positions, ascending, that top-p and min-p leave; None for all. The best is always left.

    probabilities need not add up to 1; their maximum is 1.
    """
    if borders.top_p >= 1.0 and borders.min_p <= 0.0:
        return None
    kept: NDArray[np.intp] | None = None
    if borders.top_p < 1.0:
        kept = _nucleus(probabilities, borders.top_p)
    if borders.min_p > 0.0:
        within = probabilities if kept is None else probabilities[kept]
        enough = np.flatnonzero(within >= borders.min_p)
        kept = enough if kept is None else kept[enough]
    return kept


def _nucleus(probabilities: NDArray[np.float64], top_p: float) -> NDArray[np.intp]:
    """The fewest most likely positions that hold top_p of the mass (Holtzman et al., 2020, 3.1)."""
    wanted = top_p * probabilities.sum()
    count = min(_NUCLEUS_START, len(probabilities))
    while True:
        order = _descending(probabilities, count)
        cumulative = probabilities[order].cumsum()
        if cumulative[-1] >= wanted or count == len(probabilities):
            break
        count = min(8 * count, len(probabilities))
    needed = int((cumulative < wanted).sum()) + 1
    return np.sort(order[:needed])


def _descending(values: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    if count == len(values):
        return np.argsort(-values, kind="stable")
    highest = np.sort(np.argpartition(values, -count)[-count:])
    return highest[np.argsort(-values[highest], kind="stable")]
