"""Contract of a dialect: reads what a program asks, and writes the events of the reply."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.engine.asking.answer import Request
from app.engine.engine_status import Loaded
from app.serve.refusal import RefusedError
from app.serve.reply_events import Delta, ReplyEvent, TextDelta
from backends.chat.reply_form import ReplyForm

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
