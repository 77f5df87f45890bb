"""Selection of segments to merge: each one left is twice as large as all smaller ones together.

O'Neil et al. 1996, "The log-structured merge-tree": a token is sorted again only a few times.
"""

from collections.abc import Sequence

from decoding.drafters.retrieval.segment import Segment

MOST_TOKENS = 1 << 22
"""Size limit of a segment: sorting takes 40 bytes of memory per token."""

_LARGE = MOST_TOKENS // 2
"""Size from which a segment is no longer merged, only cleaned."""

_GROWTH = 2
_MOST_LEFT_OUT = 0.25


def to_merge(segments: Sequence[Segment]) -> list[Segment]:
    """Segments to merge into one, or a single one to clean; empty if there is nothing to do."""
    for segment in segments:
        if segment.n_live < (1.0 - _MOST_LEFT_OUT) * segment.n_tokens:
            return [segment]
    smallest_first = sorted(segments, key=lambda segment: segment.n_live)
    count = tokens = 0
    for place, segment in enumerate(smallest_first):
        if segment.n_live >= _LARGE or tokens + segment.n_live > MOST_TOKENS:
            break
        if place and segment.n_live <= _GROWTH * tokens:
            count = place + 1
        tokens += segment.n_live
    return smallest_first[:count]
