"""Error of a constraint that cannot be followed any further."""

from backends.base import ModelError


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
