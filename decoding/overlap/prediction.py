"""Predicts what drafting ahead is worth, from costs that were measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.estimation.cost import CostModel
from decoding.overlap.both_at_once import AtOnce
from decoding.overlap.hidden_share import expected_hidden
from decoding.overlap.overlap_cost import OverlappedPasses, Slowdown

FREE = AtOnce(1.0, 1.0)
"""Two engines that do not slow each other."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected speedup over plain decoding, at the best length, and the hidden share there."""

    speedup: float
    length: int
    hidden: float


def predicted(
    acceptance: Sequence[float], costs: CostModel, draw_seconds: float, at_once: AtOnce | None
) -> Prediction:
    """The best fixed length of drafts made ahead; of drafts made in turn if at_once is None.

    acceptance: by position. draw_seconds: of a drafted token, alone. With c the cost of drafting a
    token and v(n) that of a pass over n, in plain steps, s the slowdown and h the hidden share, a
    round of length L takes s v(1+L) + (1-h) L c and brings 1 + sum of a_1...a_j tokens (Leviathan
    et al. 2023, arXiv 2211.17192, with h of expected_hidden).
    """
    plain = costs.seconds(1)
    best, expected, joint = Prediction(0.0, 0, 0.0), 1.0, 1.0
    slowdown = Slowdown(at_once.target if at_once else 1.0)
    passes = OverlappedPasses(costs, slowdown)
    for length, share in enumerate(acceptance[: costs.largest - 1], start=1):
        joint *= share
        expected += joint
        hidden = 0.0
        if at_once is not None:
            verification = costs.seconds(1 + length) * slowdown.factor
            draw = draw_seconds * at_once.drafter
            hidden = expected_hidden(acceptance[:length], verification, draw, draw_seconds)
        spent = 1.0 + passes.of_draft(length) + (1.0 - hidden) * length * draw_seconds / plain
        if expected / spent > best.speedup:
            best = Prediction(expected / spent, length, hidden)
    return best
