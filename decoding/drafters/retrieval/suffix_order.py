"""Suffix sorting to a fixed depth.

Larsson and Sadakane 2007, "Faster suffix sorting": ranks by the first h tokens give those by the
first 2h, and only positions that are still equal are sorted again.
"""

from collections.abc import Generator, Iterator

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 16
"""Positions sorted between two yields, unless more are equal: some 10 ms."""

_HALF_BITS = 16


def suffix_order(text: NDArray[np.uint32], depth: int) -> Generator[None, None, NDArray[np.uint32]]:
    """Positions of a text in the order of the depth tokens that begin at each.

    text: less than 2**32 tokens. depth: a power of two. A suffix sorts before its extensions.
    Yields often, so that the caller can pause it.
    """
    low = np.argsort(text.astype(np.uint16), kind="stable")  # two passes of counting, no compares
    yield
    high = np.argsort((text[low] >> _HALF_BITS).astype(np.uint16), kind="stable")
    order = low[high].astype(np.uint32)
    del low, high
    yield
    starts = _starts(text[order])
    rank = np.zeros(len(text) + depth, np.uint32)  # positions past the end sort first
    rank[order] = _ranks(starts)
    compared = 1
    while compared < depth:
        yield
        tied = np.flatnonzero(~(starts & np.append(starts[1:], True)))
        for chunk in _chunks(tied, starts):
            among = order[chunk]
            keys = rank[among].astype(np.int64) << 32 | rank[among + compared]
            sorting = np.argsort(keys)
            order[chunk] = among[sorting]
            starts[chunk] = _starts(keys[sorting])
            rank[order[chunk]] = chunk[0] + _ranks(starts[chunk], chunk - chunk[0])
            yield
        compared *= 2
    return order


def _chunks(tied: NDArray[np.int64], starts: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    """The tied positions in chunks that split no run of equal ones."""
    runs = np.flatnonzero(starts[tied])
    begin = 0
    while begin < len(tied):
        after = np.searchsorted(runs, begin + _CHUNK)
        end = int(runs[after]) if after < len(runs) else len(tied)
        yield tied[begin:end]
        begin = end


def _starts(keys: NDArray[np.int64] | NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Mask of the positions where a run of equal sorted keys begins."""
    starts = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=starts[1:])
    return starts


def _ranks(starts: NDArray[np.bool_], places: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Rank of each key: one more than the position where its run begins."""
    places = np.arange(len(starts)) if places is None else places
    return np.maximum.accumulate(np.where(starts, places, 0)) + 1
