"""How often a drafter that takes next to no time is asked: even that has to be paid for.

What a drafter gains comes in runs of steps. Asked every k steps it costs price / k a step, and of
each run (k - 1) / 2 steps have passed when it is noticed. The k at which both together are least is
the square root law of Harris 1913, "How many parts to make at once".
"""

import math

_RUN = 8.0
"""Steps in a row that gain, where one does."""

_HOPED = 0.005
"""Tokens a step that a drafter may gain in a new reply, whatever it did in the last."""

_LEAST = 0.002
"""The same where it has gained nothing for long: what it could, if the text changes."""

_MOST_DOUBLED = 4
"""The longest interval is 16 steps, the best where two drafters that gain nothing take 0.5 ms of
a step of 8.5 ms to be asked: the bundled model on two cores."""

_MEMORY = math.exp(-1.0 / 64.0)
"""Of a gain, what counts a step later."""


class Asking:
    """When one drafter is due, by what its drafts gained lately, in tokens a step.

    due: the first step at which it is asked again. Steps are counted by whoever asks.
    """

    def __init__(self) -> None:
        self.due = 0
        self._gain = _HOPED
        self._settled = 0

    def begin(self) -> None:
        """A new reply: it may suit the drafter better than the last."""
        self._gain = max(self._gain, _HOPED)
        self.due = 0

    def interval(self, price: float) -> int:
        """Steps from one question to the next; price: of one, in plain steps.

        A power of two, so that drafters are asked at the same steps and others pass undisturbed.
        """
        squared = 2.0 * _RUN * price / max(self._gain, _LEAST)
        doubled = round(math.log2(squared) / 2.0) if squared > 1.0 else 0
        return 1 << min(doubled, _MOST_DOUBLED)

    def settle(self, step: int, gained: float, price: float, *, is_running: bool) -> None:
        """It was asked at a step; is_running: whether what it said was worth a closer look."""
        kept = _MEMORY ** (step - self._settled)
        self._gain = max(kept * self._gain + (1.0 - _MEMORY) * gained, 0.0)
        self._settled = step
        interval = 1 if is_running else self.interval(price)
        self.due = (step // interval + 1) * interval
