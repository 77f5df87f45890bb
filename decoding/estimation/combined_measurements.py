"""Combines measurements of the same passes: the fastest count, as other programs only add time."""

from collections.abc import Iterator, Mapping
from operator import ge

from decoding.estimation.cost import Measured

AGREEING = 0.08
"""Relative difference up to which two passes of one length agree. A guess; not measured."""

_IMPOSSIBLE = 0.03
"""Relative timing error by which a pass may seem faster than one whose work it contains. A guess;
not measured."""

_GROUP = 4
"""Tokens that kernels process at once, so that four may cost less than three (docs/how-it-works/
controller.md)."""


def combined(earlier: Measured, later: Measured) -> Measured:
    """The fastest pass of each length in two measurements.

    It is certain if its measurement was, or if the other one agrees.
    """
    seconds: dict[int, float] = {}
    unsure: dict[int, float] = {}
    for n in sorted(earlier.seconds.keys() | later.seconds.keys()):
        passes = sorted(
            (measured.seconds[n], measured.unsure.get(n, 0.0))
            for measured in (earlier, later)
            if n in measured.seconds
        )
        seconds[n], doubt = passes[0]
        if doubt > 0.0 and len(passes) > 1:
            apart = passes[1][0] / seconds[n] - 1.0
            doubt = apart if apart > AGREEING else 0.0
        if doubt > 0.0:
            unsure[n] = doubt
    for longer, shorter, share in contradictions(seconds):
        for n in {longer, shorter} - {1}:
            unsure[n] = max(unsure.get(n, 0.0), share)
    steadier = min(later, earlier, key=lambda measured: measured.spread)
    load = min(earlier.load, later.load)
    changes = {
        n: min(later.changes[n], earlier.changes.get(n, later.changes[n])) for n in later.changes
    }
    return Measured(seconds, steadier.switching, unsure, load, later.expert_share, changes)


def contradictions(seconds: Mapping[int, float]) -> Iterator[tuple[int, int, float]]:
    """Pairs (longer, shorter, share) where the longer pass took less by share than the shorter.

    Any pass contains the work of a single step, which reads the weights. Otherwise one contains
    another if it has as many whole groups of tokens and as many tokens left over.
    """
    for longer in seconds:
        for shorter in seconds:
            contains = shorter == 1 or all(map(ge, divmod(longer, _GROUP), divmod(shorter, _GROUP)))
            if contains and seconds[longer] < (1.0 - _IMPOSSIBLE) * seconds[shorter]:
                yield longer, shorter, seconds[shorter] / seconds[longer] - 1.0
