"""Which branch of a drafted tree stands, and the token that follows it."""

import numpy as np

from decoding.draft import Draft
from decoding.sampling import uniform
from decoding.verification.tree import TreeRows, TreeVerdict, height


def verify_tree(target: TreeRows, draft: Draft, generator: np.random.Generator) -> TreeVerdict:
    """Judge a tree of tokens that were not drawn, so that what is emitted has the target's law.

    At each node a token is drawn from p_target; the child that is that token is accepted, and
    without one the token ends the step. Whatever was drafted, each token emitted was drawn from
    p_target after those before it: so it is exact, and a seed gives the plain reply. A child is a
    point mass here, accepted with probability p_target of it, as in token_level.
    """
    assert draft.parents is not None
    assert not draft.is_drawn, "tokens that were drawn are judged by their q_draft"
    nodes = range(draft.drafted)
    children = {(draft.parents[node], draft.tokens[node]): node for node in nodes}
    path: list[int] = []
    while True:
        drawn = target[path].draw(uniform(generator))
        child = children.get((path[-1] if path else -1, drawn))
        if child is None:
            longest = len(path) + height(draft.parents[: draft.drafted], path[-1] if path else -1)
            return TreeVerdict(tuple(path), drawn, longest)
        path.append(child)
