"""What several measurements of the same passes say together: other programs only ever add time."""

from collections.abc import Iterator, Mapping
from operator import ge

from decoding.cost import Measured

AGREEING = 0.08
"""By which two passes over as many tokens may differ."""

_IMPOSSIBLE = 0.03
"""By which a pass may take less than one whose work it contains: the clock's own error."""

_GROUP = 4
"""Tokens that kernels take at once: four may cost less than three, but not than other fours."""


def combined(earlier: Measured, later: Measured) -> Measured:
    """The fastest passes of two measurements, number of tokens by number of tokens.

    One is sure if it was when it was measured, or if the other measurement found about the same.
    """
    seconds: dict[int, float] = {}
    unsure: dict[int, float] = {}
    for n in sorted(earlier.seconds.keys() | later.seconds.keys()):
        found = sorted(
            (one.seconds[n], one.unsure.get(n, 0.0)) for one in (earlier, later) if n in one.seconds
        )
        seconds[n], doubt = found[0]
        if doubt > 0.0 and len(found) > 1:
            apart = found[1][0] / seconds[n] - 1.0
            doubt = apart if apart > AGREEING else 0.0
        if doubt > 0.0:
            unsure[n] = doubt
    for longer, shorter, share in contradictions(seconds):
        for n in {longer, shorter} - {1}:
            unsure[n] = max(unsure.get(n, 0.0), share)
    steadier = min(later, earlier, key=lambda one: one.spread)
    return Measured(seconds, steadier.switching, unsure, min(earlier.load, later.load))


def contradictions(seconds: Mapping[int, float]) -> Iterator[tuple[int, int, float]]:
    """Pairs (longer, shorter) of which the longer took less, though it does the same and more.

    Each with the share by which. Any pass reads the weights, as a step does. Beyond that, one
    contains another if it has as many whole groups of tokens and as many tokens left over.
    """
    for longer in seconds:
        for shorter in seconds:
            contains = shorter == 1 or all(map(ge, divmod(longer, _GROUP), divmod(shorter, _GROUP)))
            if contains and seconds[longer] < (1.0 - _IMPOSSIBLE) * seconds[shorter]:
                yield longer, shorter, seconds[shorter] / seconds[longer] - 1.0
