"""An answer on its way from the engine's thread to whoever shows it."""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from threading import Event, Lock

from app.conversation import Conversation
from app.reply_metrics import ReplyMetrics
from backends.base import SpecchatError, Tokenizer
from decoding.events import FinishReason
from decoding.sampling import SamplingSettings


class Stage(StrEnum):
    """How far an answer is."""

    QUEUED = "queued"
    READING = "reading"
    ANSWERING = "answering"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be answered, and how.

    partial: the beginning of the answer, where one is to be continued. draft: a spec for this
    answer alone, which is compared with others; None for the session's. chat: its number in the
    history, None if it is not kept.
    """

    conversation: Conversation
    settings: SamplingSettings
    max_tokens: int
    partial: str = ""
    draft: str | None = None
    chat: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one token and where it came from: a drafter's name or an Origin."""

    text: str
    origin: str


class Answer:
    """Written by the engine's thread, read and stopped by the screen's."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.stage = Stage.QUEUED
        self.read: tuple[int, int] = (0, 0)
        """Tokens of the prompt that were read, and how many there are."""
        self.dropped = 0
        """Oldest turns that no longer fit the context."""
        self.note = ""
        self.metrics: ReplyMetrics | None = None
        self.finish_reason: FinishReason | None = None
        self.error: SpecchatError | None = None
        self.pieces: tuple[Piece, ...] = ()
        """Every token of the reply, once it is done."""
        self.token_ids: tuple[int, ...] = ()
        self._text: list[str] = []
        self._lock = Lock()
        self._stop = Event()
        self._done = Event()

    def stop(self) -> None:
        """End it after the step at work; what was said stays."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        """Whether somebody asked for its end."""
        return self._stop.is_set()

    @property
    def is_done(self) -> bool:
        """Whether nothing more comes."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for its end; False if that did not come in time."""
        return self._done.wait(seconds)

    def put(self, text: str) -> None:
        """Append text, on the engine's thread."""
        if text:
            with self._lock:
                self._text.append(text)

    def take(self) -> str:
        """The text that came since the last call."""
        with self._lock:
            text = "".join(self._text)
            self._text.clear()
        return text

    def finish(self) -> None:
        """Nothing more comes."""
        self.stage = Stage.DONE
        self._done.set()


def pieces(
    tokenizer: Tokenizer, token_ids: Sequence[int], origins: Sequence[str]
) -> tuple[Piece, ...]:
    """The text each token added; characters of several tokens count for the last of them."""
    decode = getincrementaldecoder("utf-8")(errors="replace").decode
    return tuple(
        Piece(decode(tokenizer.piece(token)), origin)
        for token, origin in zip(token_ids, origins, strict=True)
    )
