"""The controller's decision for a step, in words that a user can check."""

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Reason why a step drafts or not. Expected tokens are those beyond plain decoding's."""

    PAYS = "{gain:+.1f} tokens expected"
    ASKED_AGAIN = "to see whether it pays now"
    MEASURED = "to keep the plain rate measured"
    TOO_RISKY = "a draft could lose more than was gained"
    PAYS_NOT = "no draft is expected to pay"
    SILENT = "no drafter proposed anything"


@dataclass(frozen=True, slots=True)
class Decision:
    """Which drafter drafts how many tokens, in what kind of text; plain if drafter is empty."""

    cause: Cause
    drafter: str = ""
    drafted: int = 0
    gain: float = 0.0
    context: str = ""

    def __str__(self) -> str:
        why = self.cause.format(gain=self.gain)
        where = f" ({self.context})" if self.context else ""
        what = f"{self.drafter} drafts {self.drafted}" if self.drafter else "plain"
        return f"{what}{where}, {why}"
