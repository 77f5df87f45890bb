"""Input and output of the verification rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.sampling.distribution import Distribution


class TargetRows(Protocol):
    """p_target after the history and the first i drafted tokens, for i from 0 to all of them."""

    def __getitem__(self, i: int, /) -> Distribution: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """Number of accepted tokens, and the model's own token after them."""

    accepted: int
    next_token: int


class TreeRows(Protocol):
    """p_target after the history and the drafted tokens on a path of nodes."""

    def __getitem__(self, path: Sequence[int], /) -> Distribution: ...


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """Accepted nodes from the root down, and the model's own token after them."""

    path: tuple[int, ...]
    next_token: int
