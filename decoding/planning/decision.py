"""What the controller chose for a step, and why: in words a user can check."""

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why a step drafts, or does not. Tokens expected are those beyond plain decoding's."""

    PAYS = "{gain:+.1f} tokens expected"
    ASKED_AGAIN = "to see if it pays by now"
    MEASURED = "so that it stays measured"
    TOO_RISKY = "a draft could lose more than was gained"
    PAYS_NOT = "no draft is expected to pay"
    SILENT = "who was asked had nothing to say"


@dataclass(frozen=True, slots=True)
class Decision:
    """Who drafts how many tokens in what kind of text; nobody where drafter is empty."""

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
