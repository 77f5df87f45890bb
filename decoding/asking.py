"""How often a drafter that takes next to no time is asked: even that has to be paid for.

What a drafter gains comes in runs of steps. Asked every k steps it costs price / k a step, and of
each run (k - 1) / 2 steps have passed when it is noticed. The k at which both together are least is
the square root law of Harris 1913, "How many parts to make at once".
"""

import math

_RUN = 4.0
"""Steps in a row that gain, where one does."""

_HOPED = 0.02
"""Tokens a step that a drafter may gain in a new reply, whatever it did in the last."""

_LEAST = 0.002
"""The same where it has gained nothing for long: what it could, if the text changes."""

_LONGEST = 8
_MEMORY = math.exp(-1.0 / 64.0)
"""Of a gain, what counts a step later."""


class Asking:
    """When one drafter is due, by what its drafts gained lately, in tokens a step."""

    def __init__(self) -> None:
        self._gain = _HOPED
        self._waited = 0
        self._is_running = True

    def begin(self) -> None:
        """A new reply: it may suit the drafter better than the last."""
        self._gain = max(self._gain, _HOPED)
        self._is_running = True

    def is_due(self, price: float) -> bool:
        """Whether it is asked at this step; price: what that takes, in plain steps."""
        self._waited += 1
        if not self._is_running and self._waited < self.interval(price):
            return False
        self._waited = 0
        return True

    def interval(self, price: float) -> int:
        """Steps from one question to the next, at least 1."""
        best = math.sqrt(2.0 * _RUN * price / max(self._gain, _LEAST))
        return min(max(round(best), 1), _LONGEST)

    def settle(self, gained: float, *, is_running: bool) -> None:
        """Take a step into account; is_running: whether what it said was worth a closer look."""
        self._gain = max(_MEMORY * self._gain + (1.0 - _MEMORY) * gained, 0.0)
        self._is_running = is_running
