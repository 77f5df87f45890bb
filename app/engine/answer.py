"""An answer on the way from the engine's thread to the thread that asked."""

from collections.abc import Callable
from enum import StrEnum
from threading import Event as Flag
from threading import Lock
from typing import TYPE_CHECKING

from app.engine.reply import Reply, Request
from backends.chat.reply_form import PLAIN
from decoding.events import Event, FinishReason, Prefill, Step

if TYPE_CHECKING:
    from app.engine.metrics import ReplyMetrics
    from backends.base import SpecchatError


FIGURES_SECONDS = 1.0
"""Between two sets of figures of an answer: each is painted, which takes time from the model."""


class Stage(StrEnum):
    QUEUED = "queued"
    READING = "reading"
    ANSWERING = "answering"
    DONE = "done"


class Answer:
    """An answer that the engine's thread writes and another thread reads, and may stop.

    The tokens and their text are those of the reply that the session fills.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.stage = Stage.QUEUED
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
        self.reply = Reply(request)
        """What the engine's thread fills; its clock starts anew when its turn comes."""
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
        return self.reply.text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Tokens of the whole answer so far, with those of the beginning that it continues."""
        begun = self.request.begun if self.reply.begun is None else self.reply.begun
        return *begun, *self.reply.token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why generation ended; None while it runs, and after an error."""
        return self.reply.finish_reason

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
