"""A drawn line judged as a whole, which keeps more of it than token after token.

Sun et al. 2025 (arXiv 2403.10444), block verification.
"""

from collections.abc import Sequence

import numpy as np

from decoding.draft import Draft
from decoding.sampling import Distribution, uniform
from decoding.verification.residual import uncovered
from decoding.verification.token_level import TargetRows, Verdict


def verify_block(target: TargetRows, draft: Draft, generator: np.random.Generator) -> Verdict:
    """Judge a drawn line so that what is emitted has exactly the target's distribution.

    share[i], the joint ratio p_target / q_draft of the first i tokens, capped at 1 after each, is
    how much of the target's distribution after them the draft has reached. Where S is the sum of
    max(share[i] p_target - q_draft, 0) over the tokens that may follow, the first i are kept with
    probability S / (S + 1 - share[i]); all of them with the last share. Each has a number of its
    own, and the longest that passes is kept, whichever shorter ones do not.

    Used are one number for each drafted token, then one for the token drawn. A token that was
    certain has a point mass. No row is asked for after a token that p_target rules out.
    """
    uniforms = [uniform(generator) for _ in draft.tokens]
    laws, shares = _heads(target, draft)
    for kept in range(len(shares) - 1, 0, -1):
        rest, chance = _ending(laws, shares, draft, kept)
        if uniforms[kept - 1] <= chance:
            return Verdict(kept, rest.draw(uniform(generator)))
    rest, _ = _ending(laws, shares, draft, 0)
    return Verdict(0, rest.draw(uniform(generator)))


def _heads(target: TargetRows, draft: Draft) -> tuple[list[Distribution], list[float]]:
    """p_target after each head of the draft, and its share, to the last head that is possible."""
    assert draft.distributions is not None
    laws, shares = [target[0]], [1.0]
    for token, q_draft in zip(draft.tokens, draft.distributions, strict=True):
        share = next_share(shares[-1], laws[-1].of(token), q_draft.of(token))
        if share == 0.0:
            break
        laws.append(target[len(laws)])
        shares.append(share)
    return laws, shares


def _ending(
    laws: Sequence[Distribution], shares: Sequence[float], draft: Draft, kept: int
) -> tuple[Distribution, float]:
    """What follows the first kept tokens if no more are, and the chance of these to be kept."""
    assert draft.distributions is not None
    if kept == len(draft):
        return laws[kept], shares[kept]
    rest, left = uncovered(laws[kept], draft.distributions[kept], shares[kept])
    return rest, passing(left, shares[kept])


def next_share(share: float, p_of_token: float, q_of_token: float) -> float:
    """min(1, share p_target / q_draft) of a token; 0 for one that q_draft cannot have given."""
    return min(1.0, share * p_of_token / q_of_token) if q_of_token > 0.0 else 0.0


def passing(left: float, share: float) -> float:
    """The chance left / (left + 1 - share) of a head all of whose continuations failed.

    left: the sum of what the draft left uncovered after it. 1 where all was covered.
    """
    return left / (left + (1.0 - share)) if left > 0.0 or share < 1.0 else 1.0
