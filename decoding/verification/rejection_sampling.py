"""Speculative rejection sampling: a line verified token by token.

Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Chen et al. 2023 (arXiv 2302.01318).
"""

import numpy as np

from decoding.forms import HostLine, PointMassLine
from decoding.sampling.distribution import Distribution, uniform
from decoding.verification.verdict import TargetRows, Verdict


def verify(target: TargetRows, line: HostLine, generator: np.random.Generator) -> Verdict:
    """Verify a line so that the emitted tokens have exactly the target's distribution.

    Accept x with probability min(1, p_target(x) / q_draft(x)). On the first rejection draw from
    the residual and stop; if all are accepted draw the bonus token from p_target. Rows past a
    rejection are never requested.

    For point masses the equivalent rule is to draw from p_target and accept what matches: each
    token then uses one uniform, as in plain decoding, and a seed gives the plain reply.
    """
    for position, token in enumerate(line.tokens):
        p_target = target[position]
        if isinstance(line, PointMassLine):
            drawn = p_target.draw(uniform(generator))
            if drawn != token:
                return Verdict(position, drawn)
            continue
        q_draft = line.distributions[position]
        q_of_token = q_draft.of(token)
        if not 0.0 < uniform(generator) * q_of_token <= p_target.of(token):
            return Verdict(position, residual(p_target, q_draft).draw(uniform(generator)))
    count = len(line.tokens)
    return Verdict(count, target[count].draw(uniform(generator)))


def residual(p_target: Distribution, q_draft: Distribution) -> Distribution:
    """normalise(max(p_target - q_draft, 0)) with exact zeros; p_target if that is 0 everywhere."""
    return scaled_residual(p_target, q_draft, 1.0)[0]


def scaled_residual(
    p_target: Distribution, q_draft: Distribution, share: float
) -> tuple[Distribution, float]:
    """max(share p_target - q_draft, 0), normalised, and its sum; p_target if the sum is 0."""
    left = np.maximum(share * p_target.probabilities - q_draft.at(p_target.ids), 0.0)
    total = float(left.sum())
    return (Distribution(p_target.ids, left / total), total) if total > 0.0 else (p_target, 0.0)
