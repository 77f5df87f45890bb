"""Names of the verification rules."""

from enum import StrEnum


class Rule(StrEnum):
    """Rule that verifies a draft; docs/how-it-works/lossless.md has the sources."""

    NONE = "none"
    """Nothing was drafted."""

    SAMPLE_MATCH = "sample match"
    """A certain token is accepted if the target draws it."""

    BLOCK = "block verification"
    """A sampled line, as a whole."""

    TRAVERSAL = "traversal verification"
    """A tree whose siblings were sampled without replacement, from its leaves up."""

    LOSSY = "a lossy rule"
    """A line, by an opt-in rule that does not keep the model's distribution."""
