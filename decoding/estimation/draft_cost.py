"""Drafting cost of blocks, all tokens of which come in one pass, and of trees, a level in each."""

from collections.abc import Sequence
from statistics import fmean

from decoding.estimation.cost import CostModel, DraftCost, Measured


class BlockCost(DraftCost):
    """A DraftCost of blocks, whose length is decided before: what is not used was drafted too.

    longest: most tokens of a block.
    """

    def __init__(
        self,
        draw_seconds: float,
        read_seconds: float,
        begin_seconds: float,
        longest: int,
        *,
        is_steady: bool = True,
        beside: CostModel | None = None,
    ) -> None:
        super().__init__(
            draw_seconds, read_seconds, begin_seconds, is_steady=is_steady, beside=beside
        )
        self.longest = longest
        self._planned = 0

    @staticmethod
    def of_block(
        drawing: Measured, reading: Measured, longest: int, beside: CostModel | None = None
    ) -> "BlockCost":
        """Cost by two calibrations: of drafts after one more token, and of reading tokens.

        A straight line through the shortest and the longest block, as through what is read.
        """
        begin, draw = _line(drawing)
        _, read = _line(reading)
        is_steady = drawing.is_steady and reading.is_steady
        return BlockCost(draw, read, begin, longest, is_steady=is_steady, beside=beside)

    @property
    def of_token(self) -> float:
        return super().seconds(self.longest, 1) / self.longest

    def plan(self, count: int) -> None:
        """Set the length of the next block."""
        self._planned = count

    def seconds(self, drafted: int, backlog: int) -> float:
        return super().seconds(max(drafted, self._planned) if drafted else 0, backlog)


def _line(measured: Measured) -> tuple[float, float]:
    """Seconds at 0 tokens and for each token; none below zero."""
    longest = max(measured.seconds)
    first, last = measured.seconds[1], measured.seconds[longest]
    slope = max(last - first, 0.0) / max(longest - 1, 1)
    return max(first - slope, 0.0), slope


class LevelCost(DraftCost):
    """A DraftCost per level of a tree, whatever the number of nodes.

    draw_seconds: mean of a level. widths: number of nodes expanded for each level.
    """

    def __init__(
        self,
        draw_seconds: float,
        read_seconds: float,
        widths: Sequence[int],
        *,
        is_steady: bool = True,
    ) -> None:
        """draw_seconds: of a pass over one node. read_seconds: of each further node."""
        self._further = read_seconds / draw_seconds
        self._mean = 1.0
        super().__init__(draw_seconds, read_seconds, is_steady=is_steady)
        self.plan(widths)

    def plan(self, widths: Sequence[int]) -> None:
        alone = self.level(1)
        self._depth = len(widths)
        self._mean = fmean(self._relative(width) for width in widths)
        self._draw = alone * self._mean

    def _relative(self, width: int) -> float:
        """Cost of a pass over width nodes, in passes over one."""
        return 1.0 + (width - 1) * self._further

    def level(self, width: int) -> float:
        """Seconds of a pass over width nodes, as corrected by observed drafts."""
        return self.draw_seconds / self._mean * self._relative(width)

    def seconds(self, drafted: int, backlog: int) -> float:
        """Seconds of a draft of so many nodes after backlog tokens, on at most its levels."""
        return super().seconds(min(drafted, self._depth), backlog)
