"""Acceptance by rank among siblings, from which trees are planned."""

from collections.abc import Sequence

from decoding.draft import Draft
from decoding.estimation.acceptance import Acceptance
from decoding.events import Step
from decoding.forms import Tree

_FURTHER = (0.375, 0.24, 0.16)
"""Prior probability that the second child is accepted if the first is not, and so on. A guess
close to the measured 0.36, 0.20 and 0.21 (docs/reference/measurements.md, Trees and paths)."""

_RANKS = 1 + len(_FURTHER)


def of_first(acceptance: Acceptance, bucket: str, prior: float) -> float:
    """Probability that the first child is accepted, given that its parent is."""
    return acceptance.mean(f"{bucket}:rank0", prior)


def by_rank(acceptance: Acceptance, bucket: str, first: float) -> list[float]:
    """Probability that the child of each rank is accepted, given that its parent is.

    first: probability of the first child. The sum is at most 1.
    """
    ranks = [first]
    for rank, share in enumerate(_FURTHER, start=1):
        left = max(1.0 - sum(ranks), 0.0)
        ranks.append(min(acceptance.mean(f"{bucket}:rank{rank}", left * share), left))
    return ranks


def learn(acceptance: Acceptance, bucket: str, draft: Draft, step: Step) -> None:
    """Count which child was accepted, if any, at the root and at each accepted node.

    draft: the tree that the step verified.
    """
    assert isinstance(draft.form, Tree)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(draft.form.parents[: draft.drafted]):
        children.setdefault(parent, []).append(node)
    node = -1
    for position in range(min(step.accepted + 1, len(step.tokens))):
        ranks = children.get(node, [])[:_RANKS]
        kept = step.tokens[position] if position < step.accepted else None
        for rank, child in enumerate(ranks):
            acceptance.add(f"{bucket}:rank{rank}", draft.tokens[child] == kept)
        node = _child(draft.tokens, children.get(node, []), kept)
        if node < 0:
            return


def _child(tokens: Sequence[int], children: Sequence[int], kept: int | None) -> int:
    """The child with the kept token, -1 for none."""
    return next((child for child in children if tokens[child] == kept), -1)
