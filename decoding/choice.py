"""What the controller chose for a step, and why: in words a user can check."""

from dataclasses import dataclass
from enum import StrEnum

from backends.base.tree import count_leaves
from decoding.draft import Draft
from decoding.shape import Shape


class Cause(StrEnum):
    """Why a step drafts, or does not. Tokens expected are those beyond plain decoding's."""

    PAYS = "{gain:+.1f} tokens expected"
    ASKED_AGAIN = "to see if it pays by now"
    MEASURED = "so that it stays measured"
    TOO_RISKY = "a draft could lose more than was gained"
    PAYS_NOT = "no draft is expected to pay"


@dataclass(frozen=True, slots=True)
class Choice:
    """Who drafts how many tokens in what kind of text; nobody where drafter is empty.

    branches: of a tree, its leaves; of paths, from how many one was chosen.
    """

    cause: Cause
    drafter: str = ""
    drafted: int = 0
    gain: float = 0.0
    context: str = ""
    shape: Shape = Shape.NONE
    branches: int = 1

    @classmethod
    def of(cls, draft: Draft, cause: Cause, gain: float, context: str) -> "Choice":
        """To send a draft."""
        shape, branches = draft.shape, draft.paths
        if shape is Shape.TREE and draft.parents is not None:
            branches = count_leaves(draft.parents[: draft.drafted])
        return cls(cause, draft.drafter, draft.drafted, gain, context, shape, branches)

    def __str__(self) -> str:
        why = self.cause.format(gain=self.gain)
        where = f" ({self.context})" if self.context else ""
        what = f"{self.drafter} drafts {self.drafted}{self._form}" if self.drafter else "plain"
        return f"{what}{where}, {why}"

    @property
    def _form(self) -> str:
        if self.shape is Shape.TREE and self.branches > 1:
            return f" in {self.branches} branches"
        return f", 1 of {self.branches} paths" if self.shape is Shape.PATHS else ""
