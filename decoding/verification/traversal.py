"""Traversal verification: a sampled tree verified from its leaves up.

Weng et al. 2025 (arXiv 2505.12398). It accepts at least as many tokens as from the root down. A
node whose child was rejected is accepted as block verification accepts the prefix of a line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decoding.forms import TreeWithoutReplacement
from decoding.sampling.distribution import Distribution, uniform
from decoding.verification.block import acceptance, next_share
from decoding.verification.rejection_sampling import scaled_residual
from decoding.verification.verdict import TreeRows, TreeVerdict


def verify_traversal(
    target: TreeRows, tree: TreeWithoutReplacement, generator: np.random.Generator
) -> TreeVerdict:
    """Verify a sampled tree so that the emitted tokens have exactly the target's distribution.

    A leaf is accepted with its share, the joint ratio p_target / q_draft of the tokens down to it,
    capped at 1 after each. A rejected child leaves its parent with the residual of p_target and
    q_draft, and a share to match; the next child is judged by these, and after the last one the
    parent is a leaf itself. No row is requested below a token that p_target rules out.
    """
    verdict = _Traversal(target, tree, children(tree), generator).verdict((), 1.0)
    assert verdict is not None, "the end of the history is always accepted"
    return verdict


@dataclass(frozen=True, slots=True)
class _Traversal:
    target: TreeRows
    tree: TreeWithoutReplacement
    children: Sequence[Sequence[int]]
    generator: np.random.Generator

    def verdict(self, path: tuple[int, ...], share: float) -> TreeVerdict | None:
        """The longest accepted extension of a path of nodes; None if the path is rejected."""
        if share == 0.0:
            return None
        left = None
        for node, q_draft in drafted_from(self.tree, self.children[path[-1] if path else -1]):
            left = self.target[path] if left is None else left
            token = self.tree.tokens[node]
            of_child = next_share(share, left.of(token), q_draft.of(token))
            verdict = self.verdict((*path, node), of_child)
            if verdict is not None:
                return verdict
            left, total = scaled_residual(left, q_draft, share)
            share = acceptance(total, share)
        if uniform(self.generator) <= share:
            left = self.target[path] if left is None else left
            return TreeVerdict(path, left.draw(uniform(self.generator)))
        return None


def children(tree: TreeWithoutReplacement) -> list[list[int]]:
    """The children of each node in the order sampled; those of the root come last."""
    below: list[list[int]] = [[] for _ in range(len(tree.tokens) + 1)]
    for node, parent in enumerate(tree.parents):
        below[parent].append(node)
    return below


def drafted_from(
    tree: TreeWithoutReplacement, siblings: Sequence[int]
) -> Iterator[tuple[int, Distribution]]:
    """Each sibling with its q_draft: the first one's without the tokens of those before it.

    Chen et al. 2024 (arXiv 2402.12374), Sequoia.
    """
    q_draft = tree.distributions[siblings[0]] if siblings else None
    for node in siblings:
        assert q_draft is not None, "more siblings than tokens to sample"
        yield node, q_draft
        q_draft = without(q_draft, tree.tokens[node])


def without(distribution: Distribution, token: int) -> Distribution | None:
    """The distribution given that it is not this token; None if no other token is possible."""
    others = distribution.ids != token
    left = distribution.probabilities[others]
    total = left.sum()
    return Distribution(distribution.ids[others], left / total) if total > 0.0 else None
