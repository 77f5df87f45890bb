"""Events of a served reply, and the contract of the dialects that write them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from app.engine.answer import Request
from app.engine.status import Loaded
from app.serve.refusal import RefusedError
from backends.chat.reply_form import ReplyForm


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
class Timings:
    """Times of a reply in seconds, and what was drafted by all drafters; None if not measured."""

    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    decode_tokens_per_second: float | None = None
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a reply: prompt_tokens counts cached ones too, completion_tokens reasoning ones."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    timings: Timings = field(default_factory=Timings)


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
    """Text that was added to the arguments of a call."""

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


Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream: JSON or a plain text, and its name where the dialect has names."""

    data: Json | str
    event: str = ""


class Splitter(Protocol):
    """Splits the growing text of one reply into content, reasoning and tool calls."""

    def feed(self, delta: TextDelta) -> Iterator[Delta]:
        """What is certain once this text was added."""
        ...

    def finish(self) -> Iterator[Delta]:
        """What is left at the end of the text."""
        ...

    @property
    def has_calls(self) -> bool:
        """Whether a tool was called so far."""
        ...

    reasoning_length: int
    """Characters of the text up to the end of its reasoning, as far as it was read."""


MakeSplitter = Callable[[ReplyForm], Splitter]


@dataclass(frozen=True, slots=True)
class AskedReply:
    """What a program asks for: a request for each choice, answered one after the other.

    choices: of each prompt; those of one prompt follow each other. splitter: makes the one of each
    reply, once its form is known; None if its text is all content. prompt_field, form_field: where
    the request has its prompt, and what limits the form of its replies.
    """

    requests: tuple[Request, ...]
    is_streamed: bool
    choices: int = 1
    splitter: MakeSplitter | None = None
    prompt_field: str = "messages"
    form_field: str = ""


class ReplyWriter(Protocol):
    """Writes the events of the replies to one request."""

    def frames(self, choice: int, event: ReplyEvent) -> Iterable[Frame]:
        """An event of a choice as frames of the stream; choices come one after the other."""
        ...

    def end(self) -> Iterable[Frame]:
        """What follows the last event of the last choice."""
        ...

    def failure(self, refusal: RefusedError) -> Iterable[Frame]:
        """What ends a stream that has begun when something fails."""
        ...

    def heartbeat(self) -> Frame | None:
        """What tells in a silence that the reply is still coming; None for a comment."""
        ...

    def body(self, choices: Sequence[Sequence[ReplyEvent]]) -> Json:
        """The events of all choices as the one body of a reply that is not streamed."""
        ...


class Dialect(Protocol):
    """A kind of requests, its replies and its errors."""

    @property
    def path(self) -> str:
        """Where it is served."""
        ...

    def read(self, body: bytes, model: Loaded) -> tuple[AskedReply, ReplyWriter]:
        """What a body asks of the loaded model, and the writer of its reply.

        Raises:
            RefusedError: it is malformed, out of range, or asks for what is not supported.
        """
        ...

    def error(self, refusal: RefusedError) -> Json:
        """The body of an error."""
        ...
