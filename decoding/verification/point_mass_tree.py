"""Verification of a tree of certain tokens: the branch that the target itself draws is accepted."""

import numpy as np

from decoding.forms import PointMassTree
from decoding.sampling.distribution import uniform
from decoding.verification.verdict import TreeRows, TreeVerdict


def verify_point_mass_tree(
    target: TreeRows, tree: PointMassTree, generator: np.random.Generator
) -> TreeVerdict:
    """Verify a tree of point masses so that the emitted tokens have the target's distribution.

    At each node a token is drawn from p_target; the child that matches it is accepted, and without
    one the token ends the step. Every emitted token was drawn from p_target after those before it,
    so that the rule is exact and a seed gives the plain reply.
    """
    drafted = len(tree.tokens) - tree.window_tokens
    children = {(tree.parents[node], tree.tokens[node]): node for node in range(drafted)}
    path: list[int] = []
    while True:
        drawn = target[path].draw(uniform(generator))
        child = children.get((path[-1] if path else -1, drawn))
        if child is None:
            return TreeVerdict(tuple(path), drawn)
        path.append(child)
