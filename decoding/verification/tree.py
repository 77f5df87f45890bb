"""What rules for trees are given, and what they give."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.sampling import Distribution


class TreeRows(Protocol):
    """p_target after the history and the drafted tokens of a path of nodes."""

    def __getitem__(self, path: Sequence[int], /) -> Distribution: ...


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """The nodes that stand, downwards, and the model's own token after them.

    longest: tokens of the longest branch through those nodes.
    """

    path: tuple[int, ...]
    next_token: int
    longest: int


def height(parents: Sequence[int], top: int) -> int:
    """Nodes of the longest branch below one; -1 is what all are below."""
    below = {top: 0}
    for node, parent in enumerate(parents):
        if parent in below:
            below[node] = below[parent] + 1
    return max(below.values())
