"""Shapes of drafts."""

from enum import StrEnum


class Shape(StrEnum):
    """Shape of a draft, as reported for each step."""

    NONE = "none"
    """Nothing is drafted."""

    LINE = "line"
    """One token after another."""

    PATHS = "paths"
    """A line selected from several that were sampled independently."""

    TREE = "tree"
    """Branches that share their first tokens."""


def in_words(shape: Shape, drafted: int, width: int) -> str:
    """Description of a draft, such as "tree of 7 in 4 branches"."""
    match shape:
        case Shape.NONE:
            return "nothing drafted"
        case Shape.LINE:
            return f"line of {drafted}"
        case Shape.PATHS:
            return f"1 of {width} paths of {drafted}"
        case Shape.TREE:
            return f"tree of {drafted} in {width} branch{'es' if width != 1 else ''}"
