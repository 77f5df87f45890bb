"""Opt-in rules that accept more drafted tokens and give up the model's exact distribution.

p and q are p_target and q_draft after the same tokens, x is the drafted token. No rule accepts a
token for which p is 0, such as one excluded by top-k. So at temperature 0, where p is a point mass
on the likeliest token, each of them gives plain decoding's reply.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from decoding.draft import HostLine, PointMassLine
from decoding.sampling.distribution import Distribution, point_mass, uniform
from decoding.sampling.settings import LossyRule
from decoding.verification.rules import TargetRows, Verdict, residual


def verify_lossy(
    target: TargetRows, line: HostLine, rule: LossyRule, generator: np.random.Generator
) -> Verdict:
    """Verify a line by rejection sampling with a lossy acceptance probability.

    Point masses are treated like sampled tokens, and use two uniforms each. Rows past a rejection
    are never requested.
    """
    for position, token in enumerate(line.tokens):
        p_target = target[position]
        is_certain = isinstance(line, PointMassLine)
        q_draft = point_mass(token) if is_certain else line.distributions[position]
        accept, rest = judgement(rule, p_target, q_draft, token)
        if not uniform(generator) <= accept:
            return Verdict(position, rest().draw(uniform(generator)))
    count = len(line.tokens)
    return Verdict(count, target[count].draw(uniform(generator)))


Judgement = tuple[float, Callable[[], Distribution]]
"""The probability to accept a token, capped by the caller, and what replaces a rejected one."""


def judgement(
    rule: LossyRule, p_target: Distribution, q_draft: Distribution, token: int
) -> Judgement:
    return _JUDGES[rule.name](p_target, q_draft, token, rule.strength)


def _ears(p_target: Distribution, q_draft: Distribution, token: int, strength: float) -> Judgement:
    """min(1, p/q + strength * (1 - max p)): more is accepted where the model is less certain.

    EARS (arXiv 2512.13194); the residual is that of the exact rule.
    """
    p_of_token = p_target.of(token)
    uncertainty = 1.0 - float(p_target.probabilities.max())
    accept = p_of_token / q_draft.of(token) + strength * uncertainty
    return accept if p_of_token > 0.0 else 0.0, lambda: residual(p_target, q_draft)


def _lenient(
    p_target: Distribution, q_draft: Distribution, token: int, strength: float
) -> Judgement:
    """min(1, strength * p/q), with the residual of the exact rule.

    Leviathan et al. 2023 (arXiv 2211.17192), appendix A.5, where 1/strength is the lenience.
    """
    accept = strength * p_target.of(token) / q_draft.of(token)
    return accept, lambda: residual(p_target, q_draft)


def _typical(
    p_target: Distribution, _q_draft: Distribution, token: int, strength: float
) -> Judgement:
    """Accept where p > min(strength, sqrt(strength) * exp(-H(p))), whatever q_draft is.

    Medusa (arXiv 2401.10774), section 2.3.1, with its choice of delta as the root of epsilon; H in
    nats. A rejected token is replaced by one drawn from p among those that would be accepted.
    """
    p = p_target.probabilities
    entropy = -float((p * np.log(p, where=p > 0.0, out=np.zeros_like(p))).sum())
    threshold = min(strength, strength**0.5 * np.exp(-entropy))
    return float(p_target.of(token) > threshold), lambda: _above(p_target, threshold)


def _above(p_target: Distribution, threshold: float) -> Distribution:
    p = p_target.probabilities
    kept = p > min(threshold, np.nextafter(p.max(), 0.0))
    return Distribution(p_target.ids[kept], p[kept] / p[kept].sum())


_JUDGES: Mapping[str, Callable[[Distribution, Distribution, int, float], Judgement]] = (
    MappingProxyType({"typical": _typical, "ears": _ears, "lenient": _lenient})
)
