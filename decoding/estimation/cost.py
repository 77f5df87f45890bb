"""What a target pass costs by its number of tokens: measured once, corrected by every pass."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

_DRIFT_RATE = 0.15
_SHAPE_RATE = 0.04
_DOUBTFUL = 0.2
"""Log seconds of drift seen by drafted passes alone, after which a plain step has to confirm it."""

_LARGEST_DRIFT = 0.5
_LARGEST_SURPRISE = 0.5
"""In log seconds; one pass that met a busy machine must not count for more."""


BUSY = "measured on a busy machine"
"""Said of a figure that rests on timings that disagree: another measurement may contradict it."""


class DraftCosts(Protocol):
    """What drafts of each length cost the target, beyond a plain step and in units of one."""

    @property
    def largest(self) -> int:
        """One more than the longest draft that it is known for."""
        ...

    def of_draft(self, drafted: int) -> float:
        """Of a step with drafted tokens in a row."""
        ...


@dataclass(frozen=True, slots=True)
class TreeSize:
    """The most that the trees of a drafter have: tokens in a row, and tokens in all."""

    depth: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a calibration.

    seconds: of a pass, by its number of tokens. switching: what a plain step takes longer after a
    pass over several tokens, which leaves less of the weights in the caches, in plain steps.
    unsure: numbers of tokens whose passes another program has touched, as far as timings show,
    each with the share by which its timings disagree. load: share of the processors that other
    programs took; timings agree under a constant load too, but all of them are slow.
    """

    seconds: Mapping[int, float]
    switching: float = 0.0
    unsure: Mapping[int, float] = field(default_factory=dict[int, float])
    load: float = 0.0

    @property
    def is_steady(self) -> bool:
        """Whether all timings agree."""
        return not self.unsure

    @property
    def spread(self) -> float:
        """Largest share by which timings disagree or other programs slowed them, 0 if neither."""
        return max([self.load, *self.unsure.values()])


class CostModel:
    """Seconds of a pass over n tokens, interpolated between measured points.

    Corrections follow what passes take: a drift that all n share (a deeper context, other load on
    the machine), slower, the shape of the curve at each n, and what trees take longer than lines.
    points and switching are as Measured has them. is_steady: whether the timings agreed.
    """

    def __init__(
        self, points: Mapping[int, float], switching: float = 0.0, *, is_steady: bool = True
    ) -> None:
        self.switching = switching
        self.is_steady = is_steady
        self.points = dict(sorted(points.items()))
        self._measured = [0.0, *(_interpolated(self.points, n) for n in range(1, max(points) + 1))]
        self._shape = [0.0] * len(self._measured)
        self._relative = [seconds / self._measured[1] for seconds in self._measured]
        self._drift = 0.0
        self._unconfirmed = 0.0
        self._gap = 0.0
        self._surcharge = 0.0

    @classmethod
    def of(cls, found: Measured) -> Self:
        """What calibration found, to be corrected from now on."""
        return cls(found.seconds, found.switching, is_steady=found.is_steady)

    @property
    def largest(self) -> int:
        """The most tokens the curve is known for."""
        return len(self._measured) - 1

    def seconds(self, n: int) -> float:
        """What a pass over n tokens takes now."""
        return self._measured[n] * math.exp(self._shape[n] + self._drift)

    @property
    def has_drifted(self) -> bool:
        """Whether passes take so much more or less than measured that it should be done again."""
        return abs(self._drift) > _LARGEST_DRIFT

    def relative(self, n: int) -> float:
        """The same in units of a plain step, that is of one token."""
        return self._relative[n]

    def of_draft(self, drafted: int) -> float:
        """What a step with drafted tokens costs beyond a plain one, in plain steps."""
        return self.relative(1 + drafted) - 1.0 + self.switching if drafted else 0.0

    def of_tree(self, drafted: int) -> float:
        """The same of a step over a tree, which may take longer than as many tokens in a row."""
        if not drafted:
            return 0.0
        return self.relative(1 + drafted) * math.exp(self._surcharge) - 1.0 + self.switching

    def observe(
        self, n: int, seconds: float, *, after_draft: bool = False, is_tree: bool = False
    ) -> None:
        """Correct the curve by a pass over n tokens.

        What trees take longer is theirs alone, so that lines are not thought dearer for it.
        """
        if n == 1 and after_draft:
            seconds /= 1.0 + self.switching
        if not 1 <= n <= self.largest or seconds <= 0.0:
            return
        surprise = math.log(seconds / self.seconds(n))
        if is_tree:
            surprise = _bounded(surprise - self._surcharge)
            self._surcharge += _DRIFT_RATE * surprise
            return
        surprise = _bounded(surprise)
        if n > 1:
            self._reshape(n, _SHAPE_RATE * surprise)
            self._drift += _DRIFT_RATE * surprise
            self._unconfirmed += _DRIFT_RATE * surprise
        else:
            self._confirm(surprise)

    def _reshape(self, n: int, change: float) -> None:
        self._shape[n] += change
        self._relative[n] = self._measured[n] / self._measured[1] * math.exp(self._shape[n])

    def _confirm(self, surprise: float) -> None:
        """A plain step: drift that it does not share was the shape of the longer passes."""
        change = _DRIFT_RATE * surprise
        low, high = min(self._unconfirmed, 0.0), max(self._unconfirmed, 0.0)
        shape = min(max(-change, low), high)
        if shape != 0.0:
            for n in range(2, len(self._shape)):
                self._reshape(n, shape)
        self._drift += change
        self._unconfirmed -= shape
        self._gap = surprise - change
        if abs(self._gap) <= _DOUBTFUL or shape == 0.0:
            self._unconfirmed = 0.0

    @property
    def is_doubtful(self) -> bool:
        """Whether a plain step is wanted, to tell load on the machine from a steeper curve."""
        return abs(self._unconfirmed) > _DOUBTFUL or abs(self._gap) > _DOUBTFUL


@dataclass(frozen=True, slots=True)
class TreeCosts:
    """Of trees of one size: every node takes its part of the pass, however few stand in a row."""

    costs: CostModel
    size: TreeSize

    @property
    def largest(self) -> int:
        return 1 + self.size.depth if self.size.nodes < self.costs.largest else 1

    def of_draft(self, drafted: int) -> float:
        if not drafted:
            return 0.0
        is_line = self.size.nodes == self.size.depth
        of_pass = self.costs.of_draft if is_line else self.costs.of_tree
        return of_pass(self.size.nodes)


@dataclass(frozen=True, slots=True)
class TreePasses:
    """Of trees of any size, each token of which takes its part of the pass."""

    costs: CostModel

    @property
    def largest(self) -> int:
        return self.costs.largest

    def of_draft(self, drafted: int) -> float:
        return self.costs.of_tree(drafted)


def _bounded(surprise: float) -> float:
    return max(-_LARGEST_SURPRISE, min(_LARGEST_SURPRISE, surprise))


def _interpolated(points: Mapping[int, float], n: int) -> float:
    """The straight line between the measured neighbours of n."""
    below = max(point for point in points if point <= n)
    above = min(point for point in points if point >= n)
    if below == above:
        return points[n]
    share = (n - below) / (above - below)
    return points[below] + share * (points[above] - points[below])


class DraftCost:
    """Seconds a drafter takes: for each token it draws, and for each it has to read first.

    is_steady: whether the timings that they are from agreed.
    """

    def __init__(self, draw_seconds: float, read_seconds: float, *, is_steady: bool = True) -> None:
        self.draw_seconds = draw_seconds
        self.read_seconds = read_seconds
        self.is_steady = is_steady

    @staticmethod
    def of(found: Measured) -> "DraftCost":
        """Of a drafter model, by what calibration found of its passes."""
        largest = max(found.seconds)
        reading = found.seconds[largest] / largest
        return DraftCost(found.seconds[1], reading, is_steady=found.is_steady)

    def seconds(self, drafted: int, backlog: int) -> float:
        """Of a draft after backlog tokens, the last of which is read as the first is drawn."""
        return drafted * self.draw_seconds + max(backlog - 1, 0) * self.read_seconds

    def observe(self, drafted: int, backlog: int, seconds: float) -> None:
        """Correct both figures by what a draft took."""
        expected = self.seconds(drafted, backlog)
        if expected <= 0.0 or seconds <= 0.0:
            return
        surprise = _bounded(math.log(seconds / expected))
        self.draw_seconds *= math.exp(_DRIFT_RATE * surprise)
        self.read_seconds *= math.exp(_DRIFT_RATE * surprise)
