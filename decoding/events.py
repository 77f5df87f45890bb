"""What generation reports: one event per target pass, never per token."""

from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    CONTEXT = "context"
    CANCELLED = "cancelled"


class Origin(StrEnum):
    """Where a token came from, when it did not come from a drafter."""

    MODEL = "model"
    CORRECTED = "corrected"
    BONUS = "bonus"


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress on the prompt, in tokens; cached ones were held from before."""

    done: int
    total: int
    cached: int
    seconds: float
    """Time spent on the prompt so far."""


@dataclass(frozen=True, slots=True)
class Step:
    """One target pass and the tokens it settled.

    Of drafted tokens, the first accepted stand at the head of tokens. Times are in seconds;
    at is a reading of the clock when the tokens were known.
    """

    tokens: tuple[int, ...]
    drafter: str
    drafted: int
    accepted: int
    draft_seconds: float
    verify_seconds: float
    seconds: float
    """The whole step; 0 for the first, whose pass belongs to the prompt."""
    at: float

    @property
    def provenance(self) -> tuple[str, ...]:
        """For each token the drafter's name or an Origin."""
        drafted = (self.drafter,) * self.accepted
        if len(drafted) == len(self.tokens):
            return drafted
        if self.drafted == 0:
            return (Origin.MODEL,)
        return (*drafted, Origin.BONUS if self.accepted == self.drafted else Origin.CORRECTED)


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a reply."""

    reason: FinishReason


Event = Prefill | Step | Finish
