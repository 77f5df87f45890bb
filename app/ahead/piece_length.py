"""How many tokens are read at once, so that a request that comes meanwhile waits little."""

from collections.abc import Callable

from decoding.estimation.cost import CostModel
from decoding.prefill import GROUP

SHORT_SECONDS = 0.05
"""Longest piece where a plain step is shorter: a delay that is hardly felt."""

STOPPABLE_SECONDS = 0.25
"""Longest piece while keys are pressed where passes can be stopped: what is lost then. Short pieces
read slower: on two cores a 1.1B model in Q4_0 reads 62 tokens a second in groups of 4, 87 by 16."""

_PLAIN_STEPS = 1.2
"""Plain steps that a piece may take where one takes longer: on GPUs, and with weights read from
disk, several tokens take little more than one."""

QUIET_SECONDS = 10.0
"""Time without a key after which pieces that can be stopped are as long as in a prompt."""

_CORRECTION = 0.3
"""Share by which a measured piece corrects the speed of its length. A guess; not measured."""


class PieceLength:
    """Chooses lengths of pieces by the measured cost of passes, and by the pieces read so far.

    costs: of the target's passes, None where they were not measured.
    """

    def __init__(self, costs: Callable[[], CostModel | None]) -> None:
        self._costs = costs
        self._measured: dict[int, float] = {}

    def choose(self, most: int, silence: float, *, stops_passes: bool) -> int:
        """Number of tokens of the next piece; most: the longest pass of the context.

        silence: seconds since the last key. stops_passes: whether a piece can be stopped.
        """
        if stops_passes and silence >= QUIET_SECONDS:
            return most
        longest = STOPPABLE_SECONDS if stops_passes else SHORT_SECONDS
        longest = max(longest, _PLAIN_STEPS * (self.seconds(1) or 0.0))
        length = min(GROUP, most)
        while 2 * length <= most and (self.seconds(2 * length) or longest + 1.0) <= longest:
            length *= 2
        return length

    def observe(self, count: int, seconds: float) -> None:
        """Take in the time of a piece."""
        known = self._measured.get(count, seconds)
        self._measured[count] = known + _CORRECTION * (seconds - known)

    def seconds(self, count: int) -> float | None:
        """Expected seconds of a piece of so many tokens, None while nothing is known.

        In proportion to the longest shorter pass where none of this length is known: too long
        rather than too short.
        """
        if count in self._measured:
            return self._measured[count]
        costs = self._costs()
        if costs is not None and count <= costs.largest:
            return costs.seconds(count)
        shorter = [length for length in self._measured if GROUP <= length < count]
        if shorter:
            nearest = max(shorter)
            return self._measured[nearest] * count / nearest
        if costs is not None and count > 1:
            return costs.seconds(costs.largest) * count / costs.largest
        return None
