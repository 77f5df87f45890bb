"""Contract of a dialect: reads what a program asks, and writes the events of the reply."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from app.engine.reply import Request
from app.serve.refusal import RefusedError
from app.serve.served_models import ServedModel
from app.settings.answering import Answering
from app.tools.events import ReplyEvent
from app.tools.reply_splitter import ReplySplitter
from backends.chat.reply_form import ReplyForm

JsonObject = dict[str, object]
MakeSplitter = Callable[[ReplyForm], ReplySplitter]
Choose = Callable[[str], ServedModel]
"""Gives the model of a name, or raises RefusedError."""


@dataclass(frozen=True, slots=True)
class AskedReply:
    """What a program asks of a model: a request for each choice, answered one after the other.

    choices: of each prompt; those of one prompt follow each other. splitter: makes the one of each
    reply, once its form is known; None if its text is all content. prompt_field, form_field: where
    the request has its prompt, and what limits the form of its replies.
    """

    model: ServedModel
    requests: tuple[Request, ...]
    is_streamed: bool
    choices: int = 1
    splitter: MakeSplitter | None = None
    prompt_field: str = "messages"
    form_field: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream: JSON or a plain text, and its name where the dialect has names."""

    data: JsonObject | str
    event: str = ""


class ReplyWriter(ABC):
    is_lines: ClassVar[bool] = False
    """Whether a stream has a line of JSON for each frame, and not a server-sent event."""
    load_seconds: float = 0.0
    """How long the reply waited for its model to be loaded."""

    @abstractmethod
    def frames(self, choice: int, event: ReplyEvent) -> Iterable[Frame]:
        """An event of a choice as frames of the stream; choices come one after the other."""

    @abstractmethod
    def end(self) -> Iterable[Frame]:
        """What follows the last event of the last choice."""

    @abstractmethod
    def failure(self, refusal: RefusedError) -> Iterable[Frame]:
        """What ends a stream that has begun when something fails."""

    @abstractmethod
    def body(self, choices: Sequence[Sequence[ReplyEvent]]) -> JsonObject:
        """The events of all choices as the one body of a reply that is not streamed."""

    def heartbeat(self) -> Frame | None:
        """What tells in a silence that the reply is still coming; None for a comment."""
        return None


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of requests by its path.

    read: what a body asks of the model that it names, with the server's defaults for the rest, and
    the writer of its reply; raises RefusedError if it is malformed, out of range, or asks for what
    is not supported. error: the body of an error. around: how the paths begin whose
    errors it words, "" for its own.
    """

    path: str
    read: Callable[[bytes, Answering, Choose], tuple[AskedReply, ReplyWriter]]
    error: Callable[[RefusedError], JsonObject]
    around: str = ""
