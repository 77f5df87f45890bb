"""Events of a reply, and the words that they are told in; read without loading numpy."""

from collections.abc import Iterable
from dataclasses import dataclass
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


class Shape(StrEnum):
    """Shape of a draft, as reported for each step."""

    NONE = "none"
    """Nothing is drafted."""

    LINE = "line"
    """One token after another."""

    PATHS = "paths"
    """A line selected from several that were sampled independently."""

    TREE = "tree"
    """Branches that share their first tokens."""


def in_words(shape: Shape, drafted: int, width: int) -> str:
    """Description of a draft, such as "tree of 7 in 4 branches"."""
    match shape:
        case Shape.NONE:
            return "nothing drafted"
        case Shape.LINE:
            return f"line of {drafted}"
        case Shape.PATHS:
            return f"1 of {width} paths of {drafted}"
        case Shape.TREE:
            return f"tree of {drafted} in {width} branch{'es' if width != 1 else ''}"


@dataclass(frozen=True, slots=True)
class EmptyDraft:
    """A drafter that proposed nothing when asked, and the seconds that this took."""

    drafter: str
    seconds: float


def total_seconds(empty_drafts: Iterable[EmptyDraft]) -> float:
    """Seconds spent on requests without an answer."""
    return sum(empty.seconds for empty in empty_drafts)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of a reply, its log probability, and the likeliest tokens in its place with theirs.

    They are the model's own: of its logits as they are, without temperature, penalties, bias,
    truncation and grammar. top: the likeliest first; of equals the lower id.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class State(StrEnum):
    """State of drafting as a whole, or of one drafter."""

    ON = "on"
    PAUSED = "parked"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The acceptance of a paused drafter, and the higher one with which it would pay."""

    accepted: float
    needed: float


class Cause(StrEnum):
    """Reason why a step drafts or not. Expected tokens are those beyond plain decoding's."""

    PAYS = "{gain:+.1f} tokens expected"
    ASKED_AGAIN = "to see whether it pays now"
    MEASURED = "to keep the plain rate measured"
    TOO_RISKY = "a draft could lose more than was gained"
    PAYS_NOT = "no draft is expected to pay"
    SILENT = "no drafter proposed anything"


@dataclass(slots=True)  # freezing takes time at each step
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


@dataclass(slots=True)  # freezing takes three quarters of the time to make one, each token
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
    empty_drafts: tuple[EmptyDraft, ...] = ()
    """Drafters that proposed nothing; their time is part of draft_seconds."""
    rule: Rule = Rule.NONE
    """Rule that verified the draft."""
    on_device: bool = False
    """Whether the draft was verified on the device."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """Log probabilities of the tokens, if they were asked for."""

    @property
    def passed(self) -> int:
        """Tokens of the pass: the last one of the text, drafted and window tokens."""
        return 1 + self.drafted + self.window_tokens

    @property
    def own_draft_seconds(self) -> float:
        """Drafting time without that of drafters that proposed nothing."""
        return self.draft_seconds - total_seconds(self.empty_drafts)

    @property
    def longest(self) -> int:
        """Number of tokens that could have been accepted, given those that were."""
        return self.drafted if self.branch is None else self.branch

    @property
    def provenance(self) -> tuple[str, ...]:
        """Name of the drafter, or an Origin, of each token."""
        accepted = (self.drafter,) * self.accepted
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
