"""The law of each child of a node, given the children before it."""

from collections.abc import Iterator, Sequence

from decoding.draft import Draft
from decoding.sampling import Distribution
from decoding.shape import Siblings


def children(draft: Draft) -> list[list[int]]:
    """The children of each node in the order drawn; those of the end of the history are last."""
    assert draft.parents is not None
    found: list[list[int]] = [[] for _ in range(draft.drafted + 1)]
    for node in range(draft.drafted):
        found[draft.parents[node]].append(node)
    return found


def drawn_from(draft: Draft, siblings: Sequence[int]) -> Iterator[tuple[int, Distribution]]:
    """Each of a node's children with the q_draft it was drawn from after those before it.

    Without replacement that is the first's q_draft without the tokens of those before
    (Chen et al. 2024, arXiv 2402.12374, Sequoia).
    """
    assert draft.distributions is not None
    if draft.siblings is Siblings.INDEPENDENT:
        yield from ((node, draft.distributions[node]) for node in siblings)
    elif siblings:
        q_draft: Distribution | None = draft.distributions[siblings[0]]
        for node in siblings:
            assert q_draft is not None, "more were drawn than there are"
            yield node, q_draft
            q_draft = without(q_draft, draft.tokens[node])


def without(law: Distribution, token: int) -> Distribution | None:
    """A law that one token was taken out of; None where no other had any probability."""
    others = law.ids != token
    left = law.probabilities[others]
    total = left.sum()
    return Distribution(law.ids[others], left / total) if total > 0.0 else None
