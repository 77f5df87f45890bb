"""What generation reports: one event per target pass, never per token."""

from dataclasses import dataclass
from enum import StrEnum

from decoding.rule import Rule
from decoding.shape import Shape
from decoding.silence import Silence, wasted


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

    Accepted tokens stand at the head of tokens: the first of a drafted line, or a branch of a
    drafted tree. Times are in seconds; at is a reading of the clock when the tokens were known.
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
    window_tokens: int = 0
    """Tokens of the pass that were computed for the drafter's sake, and could not be accepted."""
    branch: int | None = None
    """Of a tree, tokens of the longest branch through those accepted; None for a line."""
    shape: Shape = Shape.NONE
    width: int = 1
    """As decoding.draft.Draft has it."""
    sources: tuple[str, ...] = ()
    """Where a draft was put together from several drafters' tokens: whose each accepted one was."""
    drafted_sources: tuple[str, ...] = ()
    """The same of each drafted token."""
    silences: tuple[Silence, ...] = ()
    """Who was asked for a draft in vain; the time is part of draft_seconds."""
    rule: Rule = Rule.NONE
    """By which the draft was judged."""
    on_device: bool = False
    """Whether it was judged there."""

    @property
    def passed(self) -> int:
        """Tokens of the pass: the last one said, those drafted, and window_tokens."""
        return 1 + self.drafted + self.window_tokens

    @property
    def own_draft_seconds(self) -> float:
        """What the draft that was sent took."""
        return self.draft_seconds - wasted(self.silences) if self.silences else self.draft_seconds

    @property
    def longest(self) -> int:
        """How many tokens could have been accepted, those that were included."""
        return self.drafted if self.branch is None else self.branch

    @property
    def provenance(self) -> tuple[str, ...]:
        """For each token the drafter's name or an Origin."""
        accepted = self.sources or (self.drafter,) * self.accepted
        if len(accepted) == len(self.tokens):
            return accepted
        if self.drafted == 0:
            return (Origin.MODEL,)
        return (*accepted, Origin.BONUS if self.accepted == self.longest else Origin.CORRECTED)


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a reply."""

    reason: FinishReason


Event = Prefill | Step | Finish
