"""Polling schedule of a free drafter: even a little time has to pay.

Gains come in runs of steps. Polled every k steps, a drafter costs price / k a step, and misses the
first (k - 1) / 2 steps of each run. The k that minimises the sum is given by the square-root law of
Harris 1913, "How many parts to make at once".
"""

import math

_RUN = 8.0
"""Assumed length of a run of steps that gain. A guess; not measured."""

_HOPED = 0.005
"""Least gain assumed at the start of a reply, in tokens a step, whatever the last reply brought.
A guess; not measured."""

_LEAST = 0.002
"""Least gain assumed of a drafter that has gained nothing for long, as the text may change. A
guess; not measured."""

_MOST_DOUBLED = 4
"""Longest interval as a power of two: 16 steps, the best interval where polling two drafters that
gain nothing takes 0.5 ms of a step of 8.5 ms, as measured with the bundled model on two cores."""

_MEMORY = math.exp(-1.0 / 64.0)
"""Weight that a gain keeps per step: a mean over about 64 steps. A guess; not measured."""


class PollSchedule:
    """Schedules the polling of one drafter by its recent gain, in tokens a step.

    due: the step at which it is polled next; the caller counts steps.
    """

    def __init__(self) -> None:
        self.due = 0
        self._gain = _HOPED
        self._settled = 0

    def begin(self) -> None:
        """Start a reply, which may suit the drafter better than the last."""
        self._gain = max(self._gain, _HOPED)
        self.due = 0

    def interval(self, price: float) -> int:
        """Steps between polls; price: of one poll, in plain steps.

        A power of two, so that drafters are polled at the same steps.
        """
        squared = 2.0 * _RUN * price / max(self._gain, _LEAST)
        doubled = round(math.log2(squared) / 2.0) if squared > 1.0 else 0
        return 1 << min(doubled, _MOST_DOUBLED)

    def settle(self, step: int, gained: float, price: float, *, is_running: bool) -> None:
        """Record a poll and its gain; is_running: whether the proposal looked promising."""
        kept = _MEMORY ** (step - self._settled)
        self._gain = max(kept * self._gain + (1.0 - _MEMORY) * gained, 0.0)
        self._settled = step
        interval = 1 if is_running else self.interval(price)
        self.due = (step // interval + 1) * interval
