"""When drafters are asked: at each step while that promises something, else seldom."""

from collections.abc import Iterable, Sequence

from decoding.estimation.cost import CostModel
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import is_promising

_PATIENCE, _SELDOM = 16, 8
"""Steps without a promising proposal after which a drafter is polled at every so many alone. On
4,000 tokens of the bundled model's replies 0.99 to 1.01 of what intervals by price and gain bring
(two cores, a flat curve, an H100's 8B, polls of 0.05 and 1.1 % of a plain step); polled at every
16th step 0.989 on the flat curve."""


class PollSchedule:
    """Schedules the polling of one drafter; due: the step at which it is polled next.

    At each step while its proposals look promising; else rarely, at the steps of all such drafters.
    """

    def __init__(self) -> None:
        self.due = 0
        self._until = _PATIENCE

    def begin(self, step: int) -> None:
        self.due, self._until = 0, step + _PATIENCE

    def is_impatient(self, step: int) -> bool:
        """Whether nothing looked promising for long."""
        return step >= self._until

    def settle(self, step: int, *, is_promising: bool) -> None:
        """Record a poll."""
        if is_promising:
            self._until = step + _PATIENCE
        interval = 1 if step < self._until else _SELDOM
        self.due = (step // interval + 1) * interval


class Polling:
    """The drafters of a reply, in order of preference, and when each is due."""

    def __init__(self, drafters: Iterable[ManagedDrafter], costs: CostModel) -> None:
        self._costs = costs
        self._schedules: list[tuple[ManagedDrafter, PollSchedule]] = [
            (managed, PollSchedule()) for managed in drafters
        ]
        self._step = 0
        self._next = 0
        """First step at which a drafter is due."""

    def add(self, drafters: Iterable[ManagedDrafter]) -> None:
        """Ask further drafters, before the others."""
        self._schedules = [*((managed, PollSchedule()) for managed in drafters), *self._schedules]

    def remove(self, drafters: Sequence[ManagedDrafter]) -> None:
        self._schedules = [entry for entry in self._schedules if entry[0] not in drafters]

    def begin(self) -> None:
        for _, schedule in self._schedules:
            schedule.begin(self._step)
        self._next = 0

    def due(self) -> Sequence[ManagedDrafter]:
        """Count a step, and return the drafters that are due at it."""
        self._step += 1
        if self._step < self._next:
            return ()
        return [
            managed
            for managed, schedule in self._schedules
            if schedule.due <= self._step and not managed.dropped
        ]

    def settle(self, asked: Sequence[ManagedDrafter], promising: Sequence[ManagedDrafter]) -> None:
        """Schedule the next polls of the drafters that were asked at this step.

        A drafter model is asked seldom only where it would not pay at one standard error above its
        acceptance: others would come back late to a text that suits them again.
        """
        for managed, schedule in self._schedules:
            if managed in asked:
                may_pay = managed in promising or (
                    schedule.is_impatient(self._step) and is_promising(managed, self._costs)
                )
                schedule.settle(self._step, is_promising=may_pay)
        self._next = min(
            (schedule.due for managed, schedule in self._schedules if not managed.dropped),
            default=0,
        )
