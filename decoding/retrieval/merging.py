"""Which segments to merge: each one left is larger than all smaller ones together.

O'Neil et al. 1996, "The log-structured merge-tree": a token is sorted anew a few times only.
"""

from collections.abc import Sequence

from decoding.retrieval.segment import Segment

MOST_TOKENS = 1 << 22
"""Of a segment: sorting takes 40 bytes of memory for each."""

_LARGE = MOST_TOKENS // 2
"""Tokens from which a segment is not merged any more, only cleaned."""

_GROWTH = 2
_MOST_LEFT_OUT = 0.25


def to_merge(segments: Sequence[Segment]) -> list[Segment]:
    """Segments to make one of, or one to be cleaned; empty where all is well."""
    for segment in segments:
        if segment.n_live < (1.0 - _MOST_LEFT_OUT) * segment.n_tokens:
            return [segment]
    group: list[Segment] = []
    tokens = 0
    for segment in sorted(segments, key=lambda one: one.n_live):
        is_next = not group or segment.n_live <= _GROWTH * tokens
        if segment.n_live >= _LARGE or not is_next or tokens + segment.n_live > MOST_TOKENS:
            break
        group.append(segment)
        tokens += segment.n_live
    return group if len(group) > 1 else []
