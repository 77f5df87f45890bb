"""What a draft left uncovered of the target's distribution."""

import numpy as np

from decoding.sampling import Distribution


def residual(p_target: Distribution, q_draft: Distribution) -> Distribution:
    """normalise(max(p_target - q_draft, 0)), exact zeros kept; p_target where nothing is left."""
    return uncovered(p_target, q_draft, 1.0)[0]


def uncovered(
    p_target: Distribution, q_draft: Distribution, share: float
) -> tuple[Distribution, float]:
    """max(share p_target - q_draft, 0), normalised, and its sum; p_target where that is 0."""
    left = np.maximum(share * p_target.probabilities - q_draft.at(p_target.ids), 0.0)
    total = float(left.sum())
    return (Distribution(p_target.ids, left / total), total) if total > 0.0 else (p_target, 0.0)
