"""The share of drafting that drafting ahead is expected to hide, before any was done."""

from collections.abc import Sequence
from itertools import islice

from decoding.overlap.outcomes import kept_distribution, likeliest_outcomes

_RIGHT_AFTER_A_REJECTION = 0.4
"""Share of rejections after which the token is the drafter's next likeliest one. A guess; not
measured."""


def expected_hits(acceptance: Sequence[float], outcomes: int, after_all: float) -> float:
    """Probability that the outcome of a verification is among so many that are drafted for.

    acceptance: of each drafted token, given that all before it are accepted. after_all: that the
    drafter's likeliest token follows a draft that was accepted whole. Only the likeliest candidate
    of each position counts, which is on the safe side.
    """
    chances = kept_distribution(acceptance)
    hits = 0.0
    for outcome in islice(likeliest_outcomes(acceptance), outcomes):
        if outcome.rank == 0:
            is_whole = outcome.kept == len(acceptance)
            hits += chances[outcome.kept] * (after_all if is_whole else _RIGHT_AFTER_A_REJECTION)
    return hits


def expected_hidden(
    acceptance: Sequence[float], verification: float, draw: float, alone: float
) -> float:
    """Share of the drafting time that is hidden; less than 0 where waiting takes longer.

    verification: seconds of a pass of the target over a draft as long as acceptance. draw, alone:
    seconds of a pass of the drafter meanwhile, and alone. On average half a pass is waited for, and
    the first only finds the tokens that may follow the whole draft.
    """
    length = len(acceptance)
    if not length or draw <= 0.0 or alone <= 0.0:
        return 0.0
    passes = verification / draw
    outcomes = int(max(passes - 1.0, 0.0) // length)
    after_all = acceptance[-1]
    hits = expected_hits(acceptance, outcomes, after_all)
    if not outcomes:  # of the likeliest outcome, as many tokens as there is time for
        share = max(passes - 1.0, 0.0) / length
        hits = share * expected_hits(acceptance, 1, after_all)
    return hits - 0.5 * draw / (alone * length)
