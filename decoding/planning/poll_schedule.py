"""How often a free drafter is asked: even a little time has to pay.

Gains come in runs of steps. Asked every k steps, a drafter costs price / k a step, and misses the
first (k - 1) / 2 steps of each run. The k that minimises the sum is given by the square root law of
Harris 1913, "How many parts to make at once".
"""

import math

_RUN = 8.0
"""Steps in a row that gain, where one does."""

_HOPED = 0.005
"""Tokens a step that a drafter is assumed to gain in a new reply, whatever it did in the last."""

_LEAST = 0.002
"""Tokens a step that it is assumed to gain when it has long gained none: the text may change."""

_MOST_DOUBLED = 4
"""The longest interval is 16 steps, the best where two drafters that gain nothing take 0.5 ms of
a step of 8.5 ms to be asked: the bundled model on two cores."""

_MEMORY = math.exp(-1.0 / 64.0)
"""Weight of a gain one step later."""


class PollSchedule:
    """Schedules the requests to one drafter by its recent gain, in tokens a step.

    due: the step at which it is asked next; the caller counts steps.
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
        """Steps from one request to the next; price: of a request, in plain steps.

        A power of two, so that drafters are asked at the same steps.
        """
        squared = 2.0 * _RUN * price / max(self._gain, _LEAST)
        doubled = round(math.log2(squared) / 2.0) if squared > 1.0 else 0
        return 1 << min(doubled, _MOST_DOUBLED)

    def settle(self, step: int, gained: float, price: float, *, is_running: bool) -> None:
        """Record a request and its gain; is_running: whether the proposal looked promising."""
        kept = _MEMORY ** (step - self._settled)
        self._gain = max(kept * self._gain + (1.0 - _MEMORY) * gained, 0.0)
        self._settled = step
        interval = 1 if is_running else self.interval(price)
        self.due = (step // interval + 1) * interval
