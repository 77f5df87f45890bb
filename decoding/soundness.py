"""Whether a draft can be verified at all, whatever drafted it."""

from backends.base.parent_array import depths, is_tree
from decoding.draft import Draft


def is_sound(draft: Draft, limit: int, n_vocab: int) -> bool:
    """Whether its parts agree in number, no branch is longer than the limit, and tokens exist."""
    count = len(draft)
    if draft.parents is not None:
        is_lawful = draft.is_drawn == (draft.siblings is not None)
        if len(draft.parents) != count or not is_lawful or not is_tree(draft.parents):
            return False
        deepest = max(depths(draft.parents[: draft.drafted]), default=-1) + 1
    else:
        deepest = count
    lengths = {len(draft.confidence), len(draft.evidence), count}
    if draft.distributions is not None:
        lengths.add(len(draft.distributions))
    if draft.rows is not None:
        lengths.add(len(draft.rows))
    return (
        lengths == {count}
        and deepest <= limit
        and 0 <= draft.tail <= count
        and all(0 <= token < n_vocab for token in draft.tokens)
    )
