"""The forms a draft can have."""

from enum import StrEnum


class Shape(StrEnum):
    """How the tokens of a draft hang together."""

    NONE = "none"
    """Nothing is drafted."""

    LINE = "line"
    """One token after another."""

    PATHS = "paths"
    """A line that was chosen from several, which were drawn independently."""

    TREE = "tree"
    """Branches that share the tokens they begin with."""


def in_words(shape: Shape, drafted: int, width: int) -> str:
    """A draft of so many tokens, in so many branches or chosen from so many paths."""
    match shape:
        case Shape.NONE:
            return "nothing drafted"
        case Shape.LINE:
            return f"line of {drafted}"
        case Shape.PATHS:
            return f"1 of {width} paths of {drafted}"
        case Shape.TREE:
            return f"tree of {drafted} in {width} branch{'es' if width != 1 else ''}"


class Siblings(StrEnum):
    """How the tokens that follow one node of a tree were drawn."""

    INDEPENDENT = "independent"
    """Each from a q_draft of its own, whatever the others are; some may be alike."""

    WITHOUT_REPLACEMENT = "without replacement"
    """From one q_draft, each without those before it, which is what q_draft left after them."""
