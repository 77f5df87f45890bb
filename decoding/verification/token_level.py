"""Exact rejection sampling: which drafted tokens stand, and the token that follows them.

Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Chen et al. 2023 (arXiv 2302.01318).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from decoding.draft import Draft
from decoding.sampling import Distribution, uniform
from decoding.verification.residual import residual


class TargetRows(Protocol):
    """p_target after the history and the first i drafted tokens, for i from 0 to all of them."""

    def __getitem__(self, i: int, /) -> Distribution: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many drafted tokens stand, and the model's own token after them."""

    accepted: int
    next_token: int


def verify(target: TargetRows, draft: Draft, generator: np.random.Generator) -> Verdict:
    """Judge a draft so that what is emitted has exactly the target's distribution.

    Accept x with probability min(1, p_target(x) / q_draft(x)). On the first rejection draw from
    what the draft left uncovered and stop; with all accepted draw the bonus token from p_target.
    Rows past a rejection are never asked for.

    A deterministic draft is a point mass. For it the same rule is to draw from p_target and accept
    what was drafted alike: each token then takes one uniform, as in plain decoding, and a seed
    gives the plain reply.
    """
    for position, token in enumerate(draft.tokens):
        p_target = target[position]
        if draft.distributions is None:
            drawn = p_target.draw(uniform(generator))
            if drawn != token:
                return Verdict(position, drawn)
            continue
        q_draft = draft.distributions[position]
        q_of_token = q_draft.of(token)
        if not 0.0 < uniform(generator) * q_of_token <= p_target.of(token):
            rest = residual(p_target, q_draft)
            return Verdict(position, rest.draw(uniform(generator)))
    return Verdict(len(draft), target[len(draft)].draw(uniform(generator)))
