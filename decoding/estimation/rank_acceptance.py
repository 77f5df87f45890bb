"""How often the child of each rank is the one that the target keeps: what a tree is planned by."""

from collections.abc import Sequence

from decoding.draft import Draft
from decoding.estimation.acceptance import Acceptance
from decoding.events import Step
from decoding.forms import Tree

_FURTHER = (0.375, 0.24, 0.16)
"""How often the second child is kept where the first is not, and so on, until it is known."""

_RANKS = 1 + len(_FURTHER)


def of_first(acceptance: Acceptance, band: str, prior: float) -> float:
    """The probability that the first child is kept, given that its parent is."""
    return acceptance.mean(f"{band}:rank0", prior)


def by_rank(acceptance: Acceptance, band: str, first: float) -> list[float]:
    """The probability that the child of each rank is kept, given that its parent is.

    first: that the first one is. They sum to 1 at most.
    """
    found = [first]
    for rank, share in enumerate(_FURTHER, start=1):
        left = max(1.0 - sum(found), 0.0)
        found.append(min(acceptance.mean(f"{band}:rank{rank}", left * share), left))
    return found


def learn(acceptance: Acceptance, band: str, draft: Draft, step: Step) -> None:
    """Count, for each node that was kept and the end of the history, which child was kept, if any.

    draft: the tree that the step has judged.
    """
    assert isinstance(draft.form, Tree)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(draft.form.parents[: draft.drafted]):
        children.setdefault(parent, []).append(node)
    node = -1
    for place in range(min(step.accepted + 1, len(step.tokens))):
        ranks = children.get(node, [])[:_RANKS]
        kept = step.tokens[place] if place < step.accepted else None
        for rank, child in enumerate(ranks):
            acceptance.add(f"{band}:rank{rank}", draft.tokens[child] == kept)
        node = _child(draft.tokens, children.get(node, []), kept)
        if node < 0:
            return


def _child(tokens: Sequence[int], children: Sequence[int], kept: int | None) -> int:
    """The child with a token, -1 for none."""
    return next((child for child in children if tokens[child] == kept), -1)
