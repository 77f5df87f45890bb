"""A drawn tree judged from its leaves up, which keeps more of it than from the top down.

Weng et al. 2025 (arXiv 2505.12398), traversal verification. A node that lost a child is kept with
the chance that block verification gives the head of a line, and what it has left is the residual.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decoding.draft import Draft
from decoding.sampling import uniform
from decoding.verification.block import next_share, passing
from decoding.verification.residual import uncovered
from decoding.verification.siblings import children, drawn_from
from decoding.verification.tree import TreeRows, TreeVerdict, height


def verify_traversal(target: TreeRows, draft: Draft, generator: np.random.Generator) -> TreeVerdict:
    """Judge a drawn tree so that what is emitted has exactly the target's distribution.

    A leaf is kept with its share, the joint ratio p_target / q_draft of the tokens down to it,
    capped at 1 after each. A node whose child is not kept has left of p what the child's q_draft
    did not cover, and a share to match; its other children are judged by these, and after the last
    it is a leaf itself. No row is asked for below a token that p_target rules out.
    """
    found = _Traversal(target, draft, children(draft), generator).kept((), 1.0)
    assert found is not None, "the end of the history is always kept"
    return found


@dataclass(frozen=True, slots=True)
class _Traversal:
    target: TreeRows
    draft: Draft
    below: Sequence[Sequence[int]]
    generator: np.random.Generator

    def kept(self, path: tuple[int, ...], share: float) -> TreeVerdict | None:
        """What stands of the branches through a path of nodes; None if not even that."""
        if share == 0.0:
            return None
        left = None
        for node, q_draft in drawn_from(self.draft, self.below[path[-1] if path else -1]):
            left = self.target[path] if left is None else left
            token = self.draft.tokens[node]
            of_child = next_share(share, left.of(token), q_draft.of(token))
            found = self.kept((*path, node), of_child)
            if found is not None:
                return found
            left, total = uncovered(left, q_draft, share)
            share = passing(total, share)
        if uniform(self.generator) <= share:
            left = self.target[path] if left is None else left
            return TreeVerdict(path, left.draw(uniform(self.generator)), self._longest(path))
        return None

    def _longest(self, path: tuple[int, ...]) -> int:
        assert self.draft.parents is not None
        nodes = self.draft.parents[: self.draft.drafted]
        return len(path) + height(nodes, path[-1] if path else -1)
