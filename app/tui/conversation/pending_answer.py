"""The answer in progress: where its text comes from, and the turn that it belongs to."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.dialogue.turn import Turn
from app.engine.answer import Answer, Piece, Stage
from app.tui import wording
from decoding.events import FinishReason

_LONG_SECONDS = 0.5
"""Reading of a prompt that takes longer is shown."""


@dataclass(slots=True)
class PendingAnswer:
    """An answer in progress.

    continued: the ending of the answer that this one continues, None for a new answer.
    question: what is asked again if it gets no answer: a question that was just sent, else None.
    """

    answer: Answer
    turn: Turn
    continued: str | None = None
    question: Turn | None = None
    saved_at: float = 0.0
    dropped: int = 0
    """How many of the oldest messages have been marked as outside the context."""
    started_at: float = field(default_factory=time.monotonic)

    def take(self) -> Sequence[Piece]:
        """Move what the engine has produced since the last call to the turn, and return it."""
        pieces = self.answer.take_pieces()
        self.turn.text += "".join(piece.text for piece in pieces)
        return pieces

    @property
    def reading(self) -> str:
        """How much of the prompt has been read, once that takes long; empty otherwise."""
        done, total = self.answer.read
        is_long = time.monotonic() - self.started_at >= _LONG_SECONDS
        if self.answer.stage is not Stage.READING or not total or not is_long:
            return ""
        return f"reading {100 * done // total} %"

    def ending(self, reason: FinishReason | None) -> str:
        """The line below the answer for a reason why it ended."""
        return wording.ending(self.answer.metrics, reason, continued=self.continued)
