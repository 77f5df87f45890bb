"""A drawn tree judged from the top down: at each node one child after another.

Miao et al. 2024 (arXiv 2305.09781), SpecInfer, for children drawn independently; Chen et al. 2024
(arXiv 2402.12374), Sequoia, for those drawn without replacement.
"""

from collections.abc import Sequence

import numpy as np

from decoding.draft import Draft
from decoding.sampling import Distribution, uniform
from decoding.verification.residual import residual
from decoding.verification.siblings import children, drawn_from
from decoding.verification.tree import TreeRows, TreeVerdict, height


def verify_multi_round(
    target: TreeRows, draft: Draft, generator: np.random.Generator
) -> TreeVerdict:
    """Judge a drawn tree so that what is emitted has exactly the target's distribution.

    A child is accepted with probability min(1, p(x) / q_draft(x)), where p is p_target at first
    and after each child that was rejected what its q_draft left of p. When all were, p gives the
    token that ends the step. Rows are asked for along the path alone.
    """
    assert draft.parents is not None
    below = children(draft)
    path: list[int] = []
    while True:
        top = path[-1] if path else -1
        child, left = _first_accepted(target[path], draft, below[top], generator)
        if child is None:
            longest = len(path) + height(draft.parents[: draft.drafted], top)
            return TreeVerdict(tuple(path), left.draw(uniform(generator)), longest)
        path.append(child)


def _first_accepted(
    p_target: Distribution, draft: Draft, siblings: Sequence[int], generator: np.random.Generator
) -> tuple[int | None, Distribution]:
    """The child that is accepted, if one is, and what those before it left of p_target."""
    left = p_target
    for node, q_draft in drawn_from(draft, siblings):
        token = draft.tokens[node]
        if 0.0 < uniform(generator) * q_draft.of(token) <= left.of(token):
            return node, left
        left = residual(left, q_draft)
    return None, left
