"""Events of a reply: one per target pass, never per token."""

from dataclasses import dataclass
from enum import StrEnum

from decoding.rule import Rule
from decoding.sampling.token_logprob import TokenLogprob
from decoding.shape import Shape
from decoding.silence import Silence, total_seconds


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    CONTEXT = "context"
    CANCELLED = "cancelled"


class Origin(StrEnum):
    """Provenance of a token that no drafter proposed."""

    MODEL = "model"
    CORRECTED = "corrected"
    BONUS = "bonus"


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress on the prompt in tokens; cached ones were in the context already."""

    done: int
    total: int
    cached: int
    seconds: float
    """Time spent on the prompt so far."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What drafting ahead, during the verification before, did for a step.

    drafts: number of outcomes that were drafted for. is_hit: whether the actual one was among them.
    hidden_seconds: what drafting the tokens that were used would have taken in turn.
    """

    drafts: int
    is_hit: bool = False
    hidden_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One target pass and the tokens it emitted.

    Accepted tokens come first: the first ones of a drafted line, or a branch of a drafted tree.
    Times are in seconds; at is the clock reading when the tokens were known.
    """

    tokens: tuple[int, ...]
    drafter: str
    drafted: int
    accepted: int
    draft_seconds: float
    verify_seconds: float
    seconds: float
    """Duration of the whole step; 0 for the first, whose pass belongs to the prompt."""
    at: float
    window_tokens: int = 0
    """Tokens computed only for the drafter, which could not be accepted."""
    branch: int | None = None
    """Length of the longest branch of a tree through the accepted tokens; None for a line."""
    shape: Shape = Shape.NONE
    width: int = 1
    """Width of the draft, as in decoding.draft.Draft."""
    sources: tuple[str, ...] = ()
    """Drafter of each accepted token, if the draft combined several drafters' tokens."""
    drafted_sources: tuple[str, ...] = ()
    """Drafter of each drafted token, if the draft combined several drafters' tokens."""
    silences: tuple[Silence, ...] = ()
    """Drafters that proposed nothing; their time is part of draft_seconds."""
    rule: Rule = Rule.NONE
    """Rule that verified the draft."""
    on_device: bool = False
    """Whether the draft was verified on the device."""
    ahead: Ahead | None = None
    """As of decoding.draft.Draft."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """Log probabilities of the tokens, if they were asked for."""

    @property
    def passed(self) -> int:
        """Tokens of the pass: the last one of the text, drafted and window tokens."""
        return 1 + self.drafted + self.window_tokens

    @property
    def own_draft_seconds(self) -> float:
        """Drafting time without that of drafters that proposed nothing."""
        return (
            self.draft_seconds - total_seconds(self.silences)
            if self.silences
            else self.draft_seconds
        )

    @property
    def longest(self) -> int:
        """Number of tokens that could have been accepted, given those that were."""
        return self.drafted if self.branch is None else self.branch

    @property
    def provenance(self) -> tuple[str, ...]:
        """Name of the drafter, or an Origin, of each token."""
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
