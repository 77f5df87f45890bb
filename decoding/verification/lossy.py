"""Rules that keep more drafted tokens, and so give up the model's distribution; only if asked.

p and q are p_target and q_draft after the same tokens, x is the drafted token. A token for which p
is 0, such as one that top-k leaves out, is kept by none. So at temperature 0, where p is the
likeliest token alone, each of them gives plain decoding's reply.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from decoding.draft import Draft
from decoding.lossy_rule import LossyRule
from decoding.sampling import Distribution, point_mass, uniform
from decoding.verification.token_level import TargetRows, Verdict, residual


def verify_lossy(
    target: TargetRows, draft: Draft, rule: LossyRule, generator: np.random.Generator
) -> Verdict:
    """Judge a line by a lossy rule: as in token_level, but for how likely a token is kept.

    A deterministic draft is a point mass for every rule, and takes two uniforms a token as a drawn
    one does. Rows past a rejection are never asked for.
    """
    for position, token in enumerate(draft.tokens):
        p_target = target[position]
        q_draft = (
            point_mass(token) if draft.distributions is None else draft.distributions[position]
        )
        keep, rest = judgement(rule, p_target, q_draft, token)
        if not uniform(generator) <= keep:
            return Verdict(position, rest().draw(uniform(generator)))
    return Verdict(len(draft), target[len(draft)].draw(uniform(generator)))


Judgement = tuple[float, Callable[[], Distribution]]
"""The probability that a token is kept, at least 1 for certainly, and what is drawn from if not."""


def judgement(
    rule: LossyRule, p_target: Distribution, q_draft: Distribution, token: int
) -> Judgement:
    """What a rule says of one token drawn from q_draft."""
    return _JUDGES[rule.name](p_target, q_draft, token, rule.strength)


def _ears(p_target: Distribution, q_draft: Distribution, token: int, strength: float) -> Judgement:
    """min(1, p/q + strength * (1 - max p)): kept more where the model is less certain.

    EARS (arXiv 2512.13194); the residual is that of the exact rule.
    """
    p_of_token = p_target.of(token)
    uncertainty = 1.0 - float(p_target.probabilities.max())
    keep = p_of_token / q_draft.of(token) + strength * uncertainty
    return keep if p_of_token > 0.0 else 0.0, lambda: residual(p_target, q_draft)


def _lenient(
    p_target: Distribution, q_draft: Distribution, token: int, strength: float
) -> Judgement:
    """min(1, strength * p/q), with the residual of the exact rule.

    Leviathan et al. 2023 (arXiv 2211.17192), appendix A.5, where 1/strength is the lenience.
    """
    keep = strength * p_target.of(token) / q_draft.of(token)
    return keep, lambda: residual(p_target, q_draft)


def _typical(
    p_target: Distribution, q_draft: Distribution, token: int, strength: float
) -> Judgement:
    """Kept where p > min(strength, sqrt(strength) * exp(-H(p))), whatever q_draft is.

    Medusa (arXiv 2401.10774), section 2.3.1, with its choice of delta as the root of epsilon; H in
    nats. In the place of a token that is not kept one is drawn from p among those that would be.
    """
    p = p_target.probabilities
    entropy = -float((p * np.log(p, where=p > 0.0, out=np.zeros_like(p))).sum())
    border = min(strength, strength**0.5 * np.exp(-entropy))
    return float(p_target.of(token) > border), lambda: _above(p_target, border)


def _above(p_target: Distribution, border: float) -> Distribution:
    """p_target among the tokens above a border, which its likeliest counts as in any case."""
    p = p_target.probabilities
    kept = p > min(border, np.nextafter(p.max(), 0.0))
    return Distribution(p_target.ids[kept], p[kept] / p[kept].sum())


_JUDGES: Mapping[str, Callable[[Distribution, Distribution, int, float], Judgement]] = (
    MappingProxyType({"typical": _typical, "ears": _ears, "lenient": _lenient})
)
