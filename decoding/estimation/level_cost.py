"""Seconds a drafter takes that runs a level of its draft in each pass, several nodes at once."""

from collections.abc import Sequence
from statistics import fmean

from decoding.estimation.cost import DraftCost


class LevelCost(DraftCost):
    """A DraftCost by levels, however many nodes these have.

    draw_seconds is what a level takes on average. widths: nodes that are run for each level.
    """

    def __init__(
        self,
        draw_seconds: float,
        read_seconds: float,
        widths: Sequence[int],
        *,
        is_steady: bool = True,
    ) -> None:
        """In seconds of a pass over one node, and of each further one."""
        self._further = read_seconds / draw_seconds
        self._mean = 1.0
        super().__init__(draw_seconds, read_seconds, is_steady=is_steady)
        self.plan(widths)

    def plan(self, widths: Sequence[int]) -> None:
        """The levels of the drafts to come."""
        alone = self.level(1)
        self._depth = len(widths)
        self._mean = fmean(self._relative(width) for width in widths)
        self.draw_seconds = alone * self._mean

    def _relative(self, width: int) -> float:
        """A pass over so many nodes, in passes over one."""
        return 1.0 + (width - 1) * self._further

    def level(self, width: int) -> float:
        """Seconds of a pass over so many nodes, as passes have turned out."""
        return self.draw_seconds / self._mean * self._relative(width)

    def seconds(self, drafted: int, backlog: int) -> float:
        """Of a draft of so many nodes, which are on no more levels than it has."""
        return super().seconds(min(drafted, self._depth), backlog)
