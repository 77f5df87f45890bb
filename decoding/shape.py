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


class Siblings(StrEnum):
    """How the tokens that follow one node of a tree were drawn."""

    INDEPENDENT = "independent"
    """Each from a q_draft of its own, whatever the others are; some may be alike."""

    WITHOUT_REPLACEMENT = "without replacement"
    """From one q_draft, each without those before it, which is what q_draft left after them."""
