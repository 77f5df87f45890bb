"""Events of a reply, in no dialect: what it consists of, and how it ended."""

from dataclasses import dataclass
from enum import StrEnum


class EndReason(StrEnum):
    """Why a served reply ended; stop: by the model, stop_sequence: by a text that was asked for."""

    STOP = "stop"
    STOP_SEQUENCE = "stop_sequence"
    LENGTH = "length"
    CONTEXT = "context"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have come, by its id and bytes, and its log probability."""

    token: int
    data: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of the reply, its log probability, and the likeliest tokens at its position.

    begin, end: where it stands in the text of the whole reply, in characters.
    """

    data: bytes
    logprob: float
    top: tuple[Alternative, ...] = ()
    begin: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and times of a reply; a time that was not measured is None.

    prompt_tokens counts cached ones too, completion_tokens those of reasoning. drafted, accepted:
    by all drafters.
    """

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    decode_tokens_per_second: float | None = None
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """The first event of a reply, when its prompt was read. model: the name of what answers."""

    model: str
    prompt_tokens: int
    cached_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that was added, and its tokens where their probabilities were asked for.

    Text that may begin a stop text is held back, so tokens may come before their text.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text that was added to what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBegun:
    """The model begins to call a tool; index counts the calls of this reply from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of a reply; stop_text: the text that ended it, which is not part of it."""

    reason: EndReason
    usage: Usage
    stop_text: str = ""


Delta = TextDelta | ReasoningDelta | ToolCallBegun | ToolArguments
ReplyEvent = Begun | Delta | Ended
