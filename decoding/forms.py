"""Forms of a draft: its tokens, how they hang together, and how they were chosen.

The form of a draft determines the rule that verifies it.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from backends.base import DeviceRow
from decoding.rule import Rule
from decoding.sampling.distribution import Distribution, from_row


@dataclass(frozen=True, slots=True)
class PointMassLine:
    """Consecutive tokens, each certain given those before it."""

    rule: ClassVar[Rule] = Rule.SAMPLE_MATCH

    tokens: tuple[int, ...]

    def first(self, count: int) -> "PointMassLine":
        """The first count tokens."""
        return PointMassLine(self.tokens[:count])


@dataclass(frozen=True, slots=True)
class SampledLine:
    """Consecutive tokens, each sampled from its q_draft; a certain one has a point mass.

    prunable_suffix: number of tokens at the end that are certain and free, so that they may be cut
        off without loss.
    candidates: number of lines, sampled independently, from which this one was selected.
    """

    rule: ClassVar[Rule] = Rule.BLOCK

    tokens: tuple[int, ...]
    distributions: tuple[Distribution, ...]
    prunable_suffix: int = 0
    candidates: int = 1

    def first(self, count: int) -> "SampledLine":
        """The first count tokens, cut within the prunable suffix."""
        cut = max(len(self.tokens) - count, 0)
        assert cut <= self.prunable_suffix, "a token sampled from q_draft is never discarded"
        return replace(
            self,
            tokens=self.tokens[:count],
            distributions=self.distributions[:count],
            prunable_suffix=self.prunable_suffix - cut,
        )


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """Consecutive sampled tokens whose q_draft rows stay on the device."""

    rule: ClassVar[Rule] = Rule.BLOCK

    tokens: tuple[int, ...]
    rows: tuple[DeviceRow, ...]


@dataclass(frozen=True, slots=True)
class PointMassTree:
    """Branches of certain tokens; siblings differ.

    parents: index of the token before each, -1 for the end of the history.
    window_tokens: number of tokens at the end that are only computed, and never accepted.
    """

    rule: ClassVar[Rule] = Rule.SAMPLE_MATCH

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    window_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TreeWithoutReplacement:
    """Branches of sampled tokens, siblings without replacement and in the order sampled.

    parents: as in PointMassTree.
    distributions: the q_draft at each token's parent, from which its first sibling was sampled.
    """

    rule: ClassVar[Rule] = Rule.TRAVERSAL

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    distributions: tuple[Distribution, ...]


HostLine = PointMassLine | SampledLine
Line = HostLine | DeviceLine
Tree = PointMassTree | TreeWithoutReplacement
Form = Line | Tree


def on_host(line: Line) -> HostLine:
    """A line whose q_draft, if it has one, is in host memory."""
    if not isinstance(line, DeviceLine):
        return line
    return SampledLine(line.tokens, tuple(from_row(row.probabilities()) for row in line.rows))
