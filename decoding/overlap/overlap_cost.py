"""Cost of drafting ahead: what is hidden of the drafting, and what both at once take longer."""

import math
from dataclasses import dataclass

from decoding.estimation.cost import CostModel, DraftCost

_HIDDEN_RATE = 0.03
"""Share of a surprise by which the hidden share is corrected at each draft: about the last 30
count, as a draft is ready or it is not. With 0.1, chance parked what gains 6 % (simulated)."""

_RECOVERY = 0.003
"""Share of what was learned that is forgotten at each step without drafting ahead, so that it is
tried again after some hundred steps: chance or other load may have parked it. A guess; where it
never pays, this costs 0.3 % in simulation."""

_SLOWDOWN_RATE = 0.15
"""Share of a surprise, in log seconds, by which the slowdown is corrected; as that of trees."""

_LARGEST_SURPRISE = 0.5
"""Largest surprise that counts, in log seconds, so that one interruption by another program does
not distort it. A guess; not measured."""

_DOUBTFUL = 0.1
"""Change of the slowdown, in log seconds, that a pass alone has to confirm. A guess; not
measured."""


class OverlapCost(DraftCost):
    """Cost of drafting where a part of the drafting time is hidden behind verification.

    in_turn: cost of drafts of the same model that are not made ahead. hidden: share of the drafting
    time that is expected to be hidden; every draft after another corrects it, and it falls below 0
    where waiting for a pass that is no longer wanted takes longer than what is saved.
    """

    def __init__(self, in_turn: DraftCost, hidden: float) -> None:
        super().__init__(0.0, 0.0, is_steady=in_turn.is_steady)
        self.hidden = self._expected = hidden
        self._in_turn = in_turn

    @property
    def draw_seconds(self) -> float:
        return self._in_turn.draw_seconds * (1.0 - self.hidden)

    @property
    def read_seconds(self) -> float:
        return self._in_turn.read_seconds

    @property
    def begin_seconds(self) -> float:
        return self._in_turn.begin_seconds

    def observe(self, drafted: int, backlog: int, seconds: float) -> None:
        """Correct the hidden share by the seconds of a draft; backlog as in seconds."""
        alone = self._in_turn.seconds(drafted, backlog)
        if alone > 0.0 and seconds >= 0.0:
            hidden = min(max(1.0 - seconds / alone, -1.0), 1.0)
            self.hidden += _HIDDEN_RATE * (hidden - self.hidden)

    def observe_in_turn(self, drafted: int, backlog: int, seconds: float) -> None:
        """Take in a draft of which nothing was made ahead: it cost what drafts in turn do.

        seconds: without waiting for a pass that was under way.
        """
        self._in_turn.observe(drafted, backlog, seconds)

    def recover(self) -> None:
        """Come back a little to what was expected at first."""
        self.hidden += _RECOVERY * (self._expected - self.hidden)


class Slowdown:
    """Factor by which the target's passes take longer while its drafter drafts ahead."""

    def __init__(self, factor: float) -> None:
        self._learned = self._measured = math.log(factor)
        self._unconfirmed = 0.0
        """What was learned since passes alone were seen, in log seconds."""

    @property
    def factor(self) -> float:
        """At least 1: if passes seem faster for the company, the target became faster."""
        return math.exp(max(self._learned, 0.0))

    @property
    def is_doubtful(self) -> bool:
        """Whether a pass alone is needed to tell a slowdown from a drift of the target."""
        return abs(self._unconfirmed) > _DOUBTFUL

    def observe(self, expected: float, seconds: float) -> float:
        """Correct it by a pass that took seconds, where expected ones were expected alone.

        Returns the factor of this pass, without more surprise than counts.
        """
        if expected <= 0.0 or seconds <= 0.0:
            return self.factor
        surprise = math.log(seconds / expected) - self._learned
        bounded = min(max(surprise, -_LARGEST_SURPRISE), _LARGEST_SURPRISE)
        factor, change = math.exp(self._learned + bounded), _SLOWDOWN_RATE * bounded
        self._learned += change
        self._unconfirmed += change
        return factor

    def confirm(self, drift: float) -> None:
        """Give back what a pass alone shows to be a drift of the target, in log seconds.

        A drift that is not seen while drafting ahead is taken for a slowdown, as its passes take
        longer too. What passes alone do not show turns out to be a slowdown little by little.
        """
        low, high = min(self._unconfirmed, 0.0), max(self._unconfirmed, 0.0)
        given_back = min(max(drift, low), high)
        self._learned -= given_back
        confirmed = _SLOWDOWN_RATE * self._unconfirmed
        self._unconfirmed -= max(given_back, confirmed, key=abs)

    def recover(self) -> None:
        """Come back a little to what was measured at first."""
        self._learned += _RECOVERY * (self._measured - self._learned)


@dataclass(frozen=True, slots=True)
class OverlappedPasses:
    """Cost of verifying drafts while the next one is drafted."""

    passes: CostModel
    slowdown: Slowdown

    @property
    def largest(self) -> int:
        return self.passes.largest

    def of_draft(self, drafted: int) -> float:
        if not drafted:
            return 0.0
        surcharge = (self.slowdown.factor - 1.0) * self.passes.relative(1 + drafted)
        return self.passes.of_draft(drafted) + surcharge
