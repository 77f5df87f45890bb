"""The first branch of a tree is judged as the line that its drafter would have drafted alone.

Given its tokens, block verification keeps the first n of a line, and traversal verification the
first n nodes of a tree's first branch, with the same probability: their share (Sun et al. 2025,
arXiv 2403.10444; Weng et al. 2025, arXiv 2505.12398). Further children of a node take of its share
what would have been left to the node itself. So what becomes of the first branch teaches what is
known of lines, and no line has to be drafted for that.
"""

from dataclasses import replace

from decoding.draft import Draft
from decoding.drafters.draft_model import evidence_class
from decoding.events import Step
from decoding.shape import Siblings


def as_line(draft: Draft, *, is_greedy: bool) -> Draft | None:
    """The line that a drafter model would have drafted in place of a draft, None for another law.

    is_greedy: at temperature 0, where it is the first of the likeliest children, and where several
    lines are all the same. Above, it is the first of those drawn without replacement: likeliest
    children are not drawn, and the line chosen of several has another law.
    """
    if draft.parents is None:
        return draft if is_greedy else None
    if draft.siblings is not Siblings.WITHOUT_REPLACEMENT and not is_greedy:
        return None
    nodes = _first_branch(draft.parents[: draft.drafted])
    certain = None if draft.distributions else 1.0
    confidence = tuple(certain or draft.confidence[node] for node in nodes)
    return replace(
        draft,
        tokens=tuple(draft.tokens[node] for node in nodes),
        confidence=confidence,
        distributions=draft.distributions and tuple(draft.distributions[node] for node in nodes),
        evidence=tuple(map(evidence_class, confidence)),
        parents=None,
        siblings=None,
        passengers=0,
    )


def kept_of(line: Draft, step: Step) -> int:
    """How many tokens of the first branch of a drafted tree stand at the head of what was kept."""
    kept = 0
    for token, accepted in zip(line.tokens, step.tokens[: step.accepted], strict=False):
        if token != accepted:
            break
        kept += 1
    return kept


def _first_branch(parents: tuple[int, ...]) -> list[int]:
    """From the end of the history down, each the first of those below the one before it."""
    nodes: list[int] = []
    for node, parent in enumerate(parents):
        if parent == (nodes[-1] if nodes else -1):
            nodes.append(node)
    return nodes
