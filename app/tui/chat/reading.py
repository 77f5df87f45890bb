"""Reading all that is attached: the notes on each part are versions of an answer, then the answer.

Each note is saved as it is written, below a version of the question that holds the outline of the
parts. So whatever ends the reading, what was noted stays, and the next one goes on after it.
"""

from dataclasses import dataclass, replace

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.read_all import Plan
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, Turn
from app.engine.answer import Answer
from app.engine.metrics import ReplyMetrics
from app.engine.status import Loaded
from app.settings.answering import Answering
from app.tui.wording import SEPARATOR, joined, seconds


@dataclass(slots=True)
class Reading:
    """asked: the question as it was sent. turn: its version that the notes stand below.

    last: the answer before, whose rates are those of the next one.
    """

    plan: Plan
    asked: Turn
    turn: Turn
    last: Answer | None
    number: int = 0
    """Of the part that is read now, from 1."""

    @classmethod
    def of(cls, plan: Plan, asked: Turn, dialogue: Dialogue, last: Answer | None) -> "Reading":
        """One that goes on where an earlier one of the same parts ended."""
        outline = plan.outline
        known = (one for one in dialogue.versions(asked) if outline in one.attachments)
        turn = next(known, None)
        if turn is None:
            turn = dialogue.add_version(asked, asked.text, (*pastes_of(asked), outline))
        dialogue.show(turn)
        return cls(plan, asked, turn, last)

    def note(self, number: int) -> Turn | None:
        """The complete note on a part, None if there is none yet."""
        label = self.plan.label(number)
        found = (one for one in self.turn.children if one.ending.split(SEPARATOR)[0] == label)
        return next(found, None)

    def next(self) -> bool:
        """Go on to the first part without a note; whether there is one."""
        missing = (n for n in range(1, len(self.plan.parts) + 1) if self.note(n) is None)
        self.number = next(missing, 0)
        return bool(self.number)

    @property
    def notes(self) -> tuple[Attachment, ...]:
        notes = (self.note(number) for number in range(1, len(self.plan.parts) + 1))
        return self.plan.notes([note.text if note else "" for note in notes])

    @property
    def label(self) -> str:
        return self.plan.label(self.number)

    def answering(self, usual: Answering) -> Answering:
        """Settings of a note, which is no longer than its share of the context."""
        return replace(usual, max_tokens=min(usual.max_tokens, self.plan.note_tokens))

    def begin_note(self, dialogue: Dialogue) -> Turn:
        """An answer for the note on the part, beside those there are."""
        notes = self.turn.children
        return dialogue.add_version(notes[-1], "") if notes else dialogue.add(ASSISTANT, "")

    def time_left(self, loaded: Loaded | None) -> str:
        metrics = self.last.metrics if self.last is not None else None
        return time_left(self.plan, self.number, metrics, loaded)

    def line(self, loaded: Loaded | None) -> str:
        return joined([self.label, self.time_left(loaded)])


_ENOUGH_READ = 64
"""Tokens of a prompt whose rate is that of others."""


def time_left(plan: Plan, number: int, last: ReplyMetrics | None, loaded: Loaded | None) -> str:
    """The longest that the parts from one on take, by measured rates; empty if they are unknown.

    last: of the answer before.
    """
    if last is not None and loaded is not None and last.model != loaded.info:
        last = None
    rate = (last.decode_tokens_per_second if last else None) or (loaded and loaded.plain_rate)
    read = last.prompt_tokens - last.cached_prompt_tokens if last else 0
    took = last.prefill_seconds if last else None
    prompt_rate = read / took if took and read >= _ENOUGH_READ else None
    left = plan.seconds(number, prompt_rate or (loaded and loaded.prompt_rate), rate)
    return f"at most {seconds(left)} left" if left is not None else ""


def pastes_of(asked: Turn) -> tuple[Attachment, ...]:
    return tuple(one for one in asked.attachments if one.kind is AttachmentKind.PASTE)
