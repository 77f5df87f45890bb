"""Line equivalent of a tree: the first branch, which the drafter would have proposed as a line.

Given its tokens, block verification accepts the first n of a line, and traversal verification the
first n nodes of a tree's first branch, with the same probability: their share (Sun et al. 2025,
arXiv 2403.10444; Weng et al. 2025, arXiv 2505.12398). Further children of a node only use the part
of its share that would have been left to the node itself. So the outcome of the first branch
updates the estimates of lines, without drafting a line.
"""

from decoding.draft import Draft, with_confidence
from decoding.events import Step
from decoding.forms import PointMassLine, SampledLine, Tree, TreeWithoutReplacement


def as_line(draft: Draft, *, is_greedy: bool) -> Draft | None:
    """The line equivalent of a draft; None if lines of its drafter are distributed otherwise.

    is_greedy: at temperature 0, where a line consists of the likeliest children and several lines
    are equal. Above it, a line consists of the first children sampled without replacement;
    likeliest children are not sampled, and a selected line has another distribution.
    """
    tree = draft.form
    if not isinstance(tree, Tree):
        return draft if is_greedy else None
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
