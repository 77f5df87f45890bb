"""Block verification: a sampled line verified as a whole.

Sun et al. 2025 (arXiv 2403.10444). It accepts at least as many tokens as token by token.
"""

from collections.abc import Sequence

import numpy as np

from decoding.forms import SampledLine
from decoding.sampling.distribution import Distribution, uniform
from decoding.verification.rejection_sampling import scaled_residual
from decoding.verification.verdict import TargetRows, Verdict


def verify_block(target: TargetRows, line: SampledLine, generator: np.random.Generator) -> Verdict:
    """Verify a sampled line so that the emitted tokens have exactly the target's distribution.

    share[i] is the joint ratio p_target / q_draft of the first i tokens, capped at 1 after each.
    Where S is the sum of max(share[i] p_target - q_draft, 0) over the possible next tokens, the
    first i are accepted with probability S / (S + 1 - share[i]); all of them with the last share.
    Each prefix has a uniform of its own, and the longest that passes is accepted, whether or not
    shorter ones pass.

    Uses one uniform for each drafted token, then one for the token drawn. A certain token has a
    point mass. No row is requested after a token that p_target rules out.
    """
    uniforms = [uniform(generator) for _ in line.tokens]
    targets, shares = prefixes(target, line)
    for accepted in range(len(shares) - 1, 0, -1):
        rest, chance = ending(targets, shares, line, accepted)
        if uniforms[accepted - 1] <= chance:
            return Verdict(accepted, rest.draw(uniform(generator)))
    rest, _ = ending(targets, shares, line, 0)
    return Verdict(0, rest.draw(uniform(generator)))


def prefixes(target: TargetRows, line: SampledLine) -> tuple[list[Distribution], list[float]]:
    """p_target after each prefix of the line and its share, up to the longest possible prefix."""
    targets, shares = [target[0]], [1.0]
    for token, q_draft in zip(line.tokens, line.distributions, strict=True):
        share = next_share(shares[-1], targets[-1].of(token), q_draft.of(token))
        if share == 0.0:
            break
        targets.append(target[len(targets)])
        shares.append(share)
    return targets, shares


def ending(
    targets: Sequence[Distribution], shares: Sequence[float], line: SampledLine, accepted: int
) -> tuple[Distribution, float]:
    """What follows a prefix if no longer one is accepted, and the chance to accept the prefix."""
    if accepted == len(line.tokens):
        return targets[accepted], shares[accepted]
    rest, left = scaled_residual(targets[accepted], line.distributions[accepted], shares[accepted])
    return rest, acceptance(left, shares[accepted])


def next_share(share: float, p_of_token: float, q_of_token: float) -> float:
    """min(1, share p_target / q_draft) of a token; 0 for one that q_draft rules out."""
    return min(1.0, share * p_of_token / q_of_token) if q_of_token > 0.0 else 0.0


def acceptance(left: float, share: float) -> float:
    """The chance left / (left + 1 - share) to accept a prefix whose continuations all failed.

    left: sum of the scaled residual after the prefix. 1 if share is 1 and nothing is left.
    """
    return left / (left + (1.0 - share)) if left > 0.0 or share < 1.0 else 1.0
