"""The answer in progress: where its text comes from, where it is shown and where it is saved."""

from dataclasses import dataclass

from app.engine.answer import Answer
from app.tui import wording
from app.tui.conversation.dialogue import Turn
from app.tui.conversation.growing_message import GrowingMessage
from decoding.events import FinishReason


@dataclass(slots=True)
class PendingAnswer:
    """An answer in progress.

    typed: the question as the user typed it, empty if it was not typed for this answer.
    continued: the ending of the answer that this one continues, None for a new answer.
    """

    answer: Answer
    turn: Turn
    message: GrowingMessage
    typed: str
    continued: str | None
    saved_at: float = 0.0
    dropped: int = 0
    """How many of the oldest messages have been marked as dropped from the context."""

    def ending(self, reason: FinishReason | None) -> str:
        """The line below the answer, as of now."""
        error = "" if self.answer.error is None else str(self.answer.error)
        return wording.ending(self.answer.metrics, reason, error, self.continued)

    def final_ending(self) -> str:
        """The line below the answer once it is done."""
        ending = self.ending(self.answer.finish_reason)
        if self.dropped:
            ending += f" · {self.dropped} of the oldest messages left the context"
        return ending
