"""What a drafter's estimates learn from the outcome of its draft, a line or a tree."""

from collections.abc import Sequence

from decoding.draft import (
    Draft,
    PointMassLine,
    SampledLine,
    Tree,
    TreeWithoutReplacement,
    with_confidence,
)
from decoding.estimation.acceptance import Acceptance, AcceptanceEstimates
from decoding.events import Step


def learn_line(
    estimates: AcceptanceEstimates, draft: Draft, step: Step, *, sent: bool, is_costly: bool
) -> None:
    """Learn from the tokens of a line, up to the first rejected one.

    A certain token is judged against the model's own, sent or not; a sampled one only if it was
    sent. is_costly: whether to count positions too, as for a drafter that drafts token by token.
    """
    for position, token in enumerate(draft.tokens):
        if not draft.is_sampled:
            if position == len(step.tokens):
                return
            accepted = token == step.tokens[position]
        elif not sent or (position == step.accepted == len(step.tokens)):
            return
        else:
            accepted = position < step.accepted
        if is_costly:
            estimates.add_position(position, accepted=accepted)
        estimates.add_token(draft.evidence[position], draft.confidence[position], accepted=accepted)
        estimates.add_judged(accepted=accepted)
        if not accepted:
            return


def learn_tree(estimates: AcceptanceEstimates, step: Step) -> None:
    """Learn from the levels of a tree that was sent, down to the first without an accepted node."""
    if not step.drafted:  # window tokens alone
        estimates.add_silence()
        return
    for position in range(min(len(step.tokens), step.accepted + 1, max(step.longest, 1))):
        accepted = position < step.accepted
        estimates.add_position(position, accepted=accepted)
        estimates.add_judged(accepted=accepted)


# Line equivalent of a tree: the first branch, which the drafter would have proposed as a line.
#
# Given its tokens, block verification accepts the first n of a line, and traversal verification the
# first n nodes of a tree's first branch, with the same probability: their share (Sun et al. 2025,
# arXiv 2403.10444; Weng et al. 2025, arXiv 2505.12398). Further children of a node only use the
# part of its share that would have been left to the node itself. So the outcome of the first branch
# updates the estimates of lines, without drafting a line.


def as_line(draft: Draft, *, is_greedy: bool) -> Draft | None:
    """The line equivalent of a tree; None if lines of its drafter are distributed otherwise.

    is_greedy: at temperature 0, where a line consists of the likeliest children. Above it, one
    consists of the first children sampled without replacement; likeliest children are not sampled.
    """
    tree = draft.form
    assert isinstance(tree, Tree)
    nodes = _first_branch(tree.parents[: draft.drafted])
    tokens = tuple(tree.tokens[node] for node in nodes)
    if isinstance(tree, TreeWithoutReplacement):
        line = SampledLine(tokens, tuple(tree.distributions[node] for node in nodes))
        confidence = [draft.confidence[node] for node in nodes]
    elif is_greedy:
        line, confidence = PointMassLine(tokens), [1.0] * len(nodes)
    else:
        return None
    return with_confidence(line, draft.drafter, confidence)


def kept_of(line: Draft, step: Step) -> int:
    """Number of a line's tokens that were accepted as part of the drafted tree."""
    kept = 0
    for token, accepted in zip(line.tokens, step.tokens[: step.accepted], strict=False):
        if token != accepted:
            break
        kept += 1
    return kept


def _first_branch(parents: tuple[int, ...]) -> list[int]:
    """Nodes from the root down, each the first child of the one before."""
    nodes: list[int] = []
    for node, parent in enumerate(parents):
        if parent == (nodes[-1] if nodes else -1):
            nodes.append(node)
    return nodes


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
