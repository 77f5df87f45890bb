"""Checks that a draft is well formed, whatever drafter proposed it."""

from backends.base.parent_array import depths, is_tree
from decoding.draft import Draft
from decoding.forms import (
    DeviceLine,
    Form,
    PointMassLine,
    PointMassTree,
    SampledLine,
    Tree,
    TreeWithoutReplacement,
)


def is_sound(draft: Draft, limit: int, n_vocab: int) -> bool:
    """Whether its parts have one length, no branch exceeds the limit, and all tokens exist."""
    return (
        len(draft.confidence) == len(draft.evidence) == len(draft)
        and _is_consistent(draft.form)
        and _depth(draft) <= limit
        and all(0 <= token < n_vocab for token in draft.tokens)
    )


def _is_consistent(form: Form) -> bool:
    count = len(form.tokens)
    match form:
        case PointMassLine():
            return True
        case SampledLine():
            return len(form.distributions) == count and 0 <= form.prunable_suffix <= count
        case DeviceLine():
            return len(form.rows) == count
        case PointMassTree():
            return len(form.parents) == count and is_tree(form.parents)
        case TreeWithoutReplacement():
            lengths = {len(form.parents), len(form.distributions)}
            return lengths == {count} and is_tree(form.parents)


def _depth(draft: Draft) -> int:
    if not isinstance(draft.form, Tree):
        return len(draft)
    return 1 + max(depths(draft.form.parents[: draft.drafted]), default=-1)
