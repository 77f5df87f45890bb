"""The rules that drafts are judged by."""

from enum import StrEnum


class Rule(StrEnum):
    """Verification rule of a draft; docs/how-it-works/lossless.md has the sources."""

    NONE = "none"
    """Nothing was drafted."""

    SAMPLE_MATCH = "sample match"
    """A certain token stands where the target draws it."""

    BLOCK = "block verification"
    """A drawn line, as a whole."""

    MULTI_ROUND = "multi-round verification"
    """A tree whose siblings were drawn independently, from the top down."""

    TRAVERSAL = "traversal verification"
    """A tree whose siblings were drawn without replacement, from its leaves up."""

    LOSSY = "a lossy rule"
