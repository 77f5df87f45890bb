"""The width of passes, kept until another is worth its change.

An engine that records passes replays runs of one width; the first two passes of another width take
longer. When to change is a metrical task system with known costs (Borodin, Linial, Saks 1992, "An
optimal on-line algorithm for metrical task systems"): a width is left for another once what that
would have gained since the last change exceeds what changing there and back costs.
"""

from collections.abc import Sequence

from decoding.estimation.cost import CostModel
from decoding.planning.draft_length import Option, reachable


class KeptWidth:
    """Chooses the width of each step of a reply; costs: of passes, with changes.

    rows: the width of the last step. is_refused: whether a larger one was expected to pay, and was
    not affordable. may_pay: whether one is.
    """

    def __init__(self, costs: CostModel) -> None:
        self.rows: int = 1
        self.is_refused = self.may_pay = False
        self._costs = costs
        self._is_free = True
        self._missed: dict[int, float] = {}

    def begin(self) -> None:
        self._is_free = True
        self._missed = {}

    def choose(
        self,
        drafts: Sequence[Sequence[Option]],
        rate: float,
        affordable: float,
        cautious: Sequence[Sequence[Option]] = (),
        affordable_if_proven: float = 0.0,
        passing: Sequence[Option] = (),
    ) -> int:
        """The width of the next step.

        drafts: by drafter, for each draft length, the tokens expected to be accepted and the cost
        of drafting. rate: recent tokens per plain step's time, capped at what a width can reach.
        affordable: the most that may be lost, in plain steps; affordable_if_proven: where one of
        cautious, drafts by their least expectation, pays at a width. passing: drafts of this step
        alone, while the next ones will have others like drafts, if there are any.
        """
        options = self._by_width([*drafts, passing])
        rate = reachable([one for of_width in options.values() for one in of_width], rate)
        bests = _bests(options, rate)
        proven = _bests(self._by_width(cautious), 1.0)
        narrow = min(width for width in bests if width > 1)
        again = self._costs.change(narrow) + bests[narrow][1] + self._costs.change(1)
        gains = {1: bests[1][0]}
        for width, (gain, cost) in bests.items():
            most = affordable
            if proven[width][0] > 0.0:  # if it fails all the same, a narrow one is left to try
                most = max(most, affordable_if_proven - (again if width > narrow else 0.0))
            if width > 1 and self._changes(width) + cost <= most:
                gains[width] = gain
        best = max(bests, key=bests.__getitem__)
        self.is_refused, self.may_pay = best not in gains, bests[best][0] > 0.0
        if self._is_free:
            runs = _bests(self._by_width(drafts or [passing]), rate)
            run = max(gains, key=lambda width: runs[width][0])
            gains = {
                width: gain - rate * self._costs.change(run) * (width != run)
                for width, gain in gains.items()
            }
        return self._best(gains, rate)

    def _by_width(self, drafts: Sequence[Sequence[Option]]) -> dict[int, list[Option]]:
        """The drafts that each width has room for, with the cost of its pass."""
        further = {width: self._costs.relative(width) - 1.0 for width in self._costs.changes}
        return {
            width: [
                (count, more, extra + cost)
                for drafter in drafts
                for count, more, cost in drafter[:width]
            ]
            for width, extra in further.items()
        }

    def _best(self, gains: dict[int, float], rate: float) -> int:
        """The width that gains most, or the last one until what it misses pays for a change."""
        if self._is_free or self.rows not in gains:
            return max(gains, key=gains.__getitem__)
        here, back = gains[self.rows], self._costs.change(self.rows)
        for width, gain in gains.items():
            self._missed[width] = max(self._missed.get(width, 0.0) + gain - here, 0.0)
        best = max(gains, key=lambda width: self._missed[width] - rate * self._costs.change(width))
        pays = self._missed[best] > rate * (self._costs.change(best) + back)
        return best if pays else self.rows

    def at_risk(self, width: int) -> float:
        """What a step and the changes to it and back to plain steps may lose, in plain steps."""
        if width == 1:
            return 0.0
        return self._changes(width) + self._costs.relative(width) - 1.0

    def _changes(self, width: int) -> float:
        """Cost of changing to a width, and back to plain steps."""
        there = 0.0 if self._is_free or width == self.rows else self._costs.change(width)
        return there + self._costs.change(1)

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


def _bests(options: dict[int, list[Option]], rate: float) -> dict[int, tuple[float, float]]:
    """By width, the gain of the best draft and its cost; 0 where there is none."""
    return {
        width: max(((more - rate * cost, cost) for _, more, cost in of_width), default=(0.0, 0.0))
        for width, of_width in options.items()
    }
