"""Drafting cost of a drafter that expands one level of a tree in each pass."""

from collections.abc import Sequence
from statistics import fmean

from decoding.estimation.cost import DraftCost


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
        """Set the levels of the next drafts."""
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
