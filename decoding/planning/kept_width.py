"""The width of passes, kept until another is worth its change.

An engine that records passes replays runs of one width; the first two passes of another width take
longer. When to change is a metrical task system with known costs (Borodin, Linial, Saks 1992, "An
optimal on-line algorithm for metrical task systems"): a width is left for another once what that
would have gained since the last change exceeds what changing there and back costs.
"""

from collections.abc import Sequence

from decoding.estimation.cost import CostModel


class KeptWidth:
    """Chooses the width of each step of a reply; costs: of passes, with changes.

    rows: the width of the last step. is_refused: whether a larger one was expected to pay, and was
    not affordable.
    """

    def __init__(self, costs: CostModel) -> None:
        self.rows = 1
        self.is_refused = False
        self._costs = costs
        self._is_free = True
        self._missed: dict[int, float] = {}

    def begin(self) -> None:
        self._is_free = True
        self._missed = {}

    def choose(self, expected: Sequence[float], rate: float, affordable: float) -> int:
        """The width of the next step.

        expected: tokens expected to be accepted of drafts of at most so many, less what drafting
        costs. rate: recent tokens per plain step's time. affordable: the most that may be lost.
        """
        costs = self._costs
        gains = {
            width: expected[min(width, len(expected)) - 1] - rate * (costs.relative(width) - 1.0)
            for width in costs.changes
        }
        best = self._best(gains)
        self.is_refused = affordable < self.at_risk(best)
        if self.is_refused:
            best = self.rows if affordable >= self.at_risk(self.rows) else 1
        return best

    def _best(self, gains: dict[int, float]) -> int:
        """The width that gains most, or the last one until what it misses pays for a change."""
        if self._is_free:
            return max(gains, key=gains.__getitem__)
        here, back = gains[self.rows], self._costs.change(self.rows)
        for width, gain in gains.items():
            self._missed[width] = max(self._missed.get(width, 0.0) + gain - here, 0.0)
        best = max(gains, key=lambda width: self._missed[width] - self._costs.change(width))
        return best if self._missed[best] > self._costs.change(best) + back else self.rows

    def at_risk(self, width: int) -> float:
        """What a step and the changes to it and back to plain steps may lose, in plain steps."""
        if width == 1:
            return 0.0
        there = 0.0 if self._is_free or width == self.rows else self._costs.change(width)
        return there + self._costs.relative(width) - 1.0 + self._costs.change(1)

    def ran(self, rows: int) -> float:
        """Note the width of a step; returns what its change cost, in plain steps.

        rows: of the pass, fewer than a width where the end of the context left no room to fill it.
        """
        width = self._costs.width(rows)
        is_change = width != self.rows and not self._is_free
        if width != self.rows:
            self._missed = {}
        self.rows, self._is_free = width, False
        return self._costs.change(width) if is_change else 0.0
