"""Errors of a constraint on a reply."""

from backends.base import ModelError, UsageError


class GrammarError(UsageError):
    """A schema or grammar that cannot be used."""


class ConstraintError(ModelError):
    """A grammar that became too complex, or leaves nothing to follow, at the place asked about.

    Along a draft it ends nothing: without the draft the reply may go on.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            "the answer was stopped",
            f"its grammar cannot be followed any further ({why})",
            "The answer so far is kept. Simplify the schema or the grammar.",
        )


class NotAllowedError(ModelError):
    """A token was emitted that may not follow, as the model left no choice but such."""

    def __init__(self) -> None:
        super().__init__(
            "the answer was stopped",
            "the model gives no score to any token that its grammar allows",
            "The answer so far is kept.",
        )
