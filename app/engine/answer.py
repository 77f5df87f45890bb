"""A request, and its answer on the way from the engine's thread to the thread that asked."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from threading import Event as Flag
from threading import Lock
from typing import TYPE_CHECKING

from app.chat.conversation import USUAL, Conversation, Infill, RawText, ReplyOptions
from app.engine.reply import START, Piece, Reply
from backends.chat.message import Tool
from backends.chat.reply_form import PLAIN
from decoding.events import Event, FinishReason, Prefill, Step
from decoding.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from app.engine.metrics import ReplyMetrics
    from backends.base import SpecchatError


class Stage(StrEnum):
    QUEUED = "queued"
    READING = "reading"
    ANSWERING = "answering"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Request:
    """A conversation to answer, and how.

    partial: the beginning of an answer to continue. begun: the tokens that spell it, as far as they
    are known. draft: the drafters of this answer alone, for comparing answers; None for the
    session's. chat: its number in the history, None if not saved.
    text: what is continued in place of the conversation. tools: those that the model may call.
    may_drop: whether the oldest turns are left out where the context is too short; if not, that is
    an error. program: the name of the program that asks over HTTP, "" if the user does.
    """

    conversation: Conversation
    settings: SamplingSettings
    max_tokens: int
    partial: str = ""
    begun: tuple[int, ...] = ()
    draft: str | None = None
    chat: int | None = None
    options: ReplyOptions = USUAL
    text: RawText | Infill | None = None
    tools: tuple[Tool, ...] = ()
    may_drop: bool = True
    program: str = ""


class Answer:
    """An answer that the engine's thread writes and another thread reads, and may stop.

    The tokens and their text are those of the reply that the session fills.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.stage = Stage.QUEUED
        self.asked_at = 0.0
        """When it was asked for, by time.perf_counter()."""
        self.read: tuple[int, int] = (0, 0)
        """Prompt tokens read so far, and in all."""
        self.dropped = 0
        """Oldest turns left out of the prompt, as they no longer fit the context."""
        self.note = ""
        self.model = ""
        """Name of the model that answers, known once its turn has come."""
        self.form = PLAIN
        """What the reply may be made of, known once its prompt is read."""
        self.metrics: ReplyMetrics | None = None
        self.error: SpecchatError | None = None
        self.reply: Reply | None = None
        """What the engine's thread goes on to fill; None before its prompt is known."""
        self._taken = START
        self._claim = Lock()
        """Acquired once and never released: by the engine's thread when its turn comes, or by
        whoever stops it before that. The one who has it finishes the answer."""
        self._stop = Flag()
        self._done = Flag()
        self._on_change: Callable[[], None] | None = None

    def listen(self, on_change: Callable[[], None]) -> None:
        """Have a function called on the engine's thread after each event and at the end.

        Whoever stops an answer that still waits for its turn calls it at the end. It must not
        block, nor raise. One listener at a time.
        """
        self._on_change = on_change
        if self.is_done:
            on_change()

    def stop(self) -> None:
        """Request its end after the current step; the text so far is kept.

        While it waits for its turn, it ends at once, and will never be answered.
        """
        self._stop.set()
        if self.claim():
            self.finish()

    def claim(self) -> bool:
        """Become the one who finishes it; False if another thread is."""
        return self._claim.acquire(blocking=False)

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        return self._done.wait(seconds)

    @property
    def text(self) -> str:
        return self.reply.text if self.reply else ""

    def take_pieces(self) -> list[Piece]:
        """Text added since the last call, one piece for equal neighbours; for one reader."""
        if self.reply is None:
            return []
        added, self._taken = self.reply.pieces_after(self._taken)
        return added

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Tokens of the whole answer so far, with those of the beginning that it continues."""
        return (*self.reply.begun, *self.reply.token_ids) if self.reply else self.request.begun

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why generation ended; None while it runs, and after an error."""
        return self.reply.finish_reason if self.reply else None

    def on_event(self, event: Event) -> None:
        if isinstance(event, Prefill):
            self.read = (event.done, event.total)
        elif isinstance(event, Step):
            self.stage = Stage.ANSWERING
        if self._on_change is not None:
            self._on_change()

    def finish(self) -> None:
        """Mark it as done; for the one who has claimed it."""
        self.stage = Stage.DONE
        self._done.set()
        if self._on_change is not None:
            self._on_change()
