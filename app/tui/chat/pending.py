"""An answer in progress: its text, the turn that it belongs to, and the line below it."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from app.chat.conversation import USUAL, Conversation, ReplyOptions
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import Turn
from app.engine.answer import Answer, Stage
from app.engine.metrics import ReplyMetrics
from app.engine.reply import Request
from app.settings.answering import Answering
from app.tools.toolbox import calls_in
from app.tui import wording
from app.tui.wording import SEPARATOR, joined
from backends.chat.message import Tool, ToolCall
from decoding.events import FinishReason

_ON_PANEL = (" tok/s", " plain", "% drafted", "beside others")
"""What the figures have in common that the panel shows."""


def live_line(metrics: ReplyMetrics) -> str:
    rate = wording.rate(metrics.decode_tokens_per_second)
    return joined([rate, metrics.comparison.words, wording.drafted(metrics)])


def without_panel_figures(ending: str) -> str:
    parts = ending.split(SEPARATOR)
    return joined(part for part in parts if not any(figure in part for figure in _ON_PANEL))


_RETRY_SECONDS = 0.75
"""Between two saves of a growing answer while saving fails."""

_LONG_SECONDS = 0.5
"""Reading of a prompt that takes longer is shown."""


@dataclass(slots=True, eq=False)
class Several:
    """Answers to one question, of which one is picked.

    models: those that write them, "" for the one in use. turns: the answers; before a single new
    one stands the answer that there was. fault: what went wrong.
    """

    models: list[str]
    turns: list[Turn]
    fault: str = ""
    is_stopped: bool = False

    def remove(self, turn: Turn) -> None:
        place = self.turns.index(turn)
        del self.turns[place], self.models[place]


@dataclass(slots=True, eq=False)
class PendingAnswer:
    """An answer in progress.

    dialogue: its chat, which may have been left. continued: the ending that it had before it was
    continued, None for a new answer. models: those that wrote what is continued. question: the
    question that was sent for it, and returns to the prompt if there is no answer. instead: the
    version that is shown again then. previous: the chat that is shown again then.
    """

    dialogue: Dialogue
    answer: Answer
    turn: Turn
    continued: str | None = None
    models: tuple[str, ...] = ()
    question: Turn | None = None
    instead: Turn | None = None
    previous: Dialogue | None = None
    label: str = ""
    saved: int = 0
    """Characters that have been saved."""
    saved_at: float = 0.0
    dropped: int = 0
    """How many of the oldest messages have been marked as outside the context."""
    started_at: float = field(default_factory=time.monotonic)

    @classmethod
    def of(
        cls,
        dialogue: Dialogue,
        turn: Turn,
        answering: Answering,
        options: ReplyOptions = USUAL,
        conversation: Conversation | None = None,
        writer: str | None = None,
        tools: Sequence[Tool] = (),
        documents: Callable[[], Iterable[tuple[str, str]]] | None = None,
    ) -> "PendingAnswer":
        """An answer to be asked for, which its turn grows by.

        conversation: what is answered, None for what leads to the turn. writer: the model that
        writes this one of several answers, None for a single one. tools: those that it may call.
        documents: as in Request.
        """
        version = 0 if writer is None else len(dialogue.versions(turn)) - 1
        if conversation is None:
            above = turn.parent
            conversation = dialogue.conversation(above) if above else Conversation(dialogue.system)
        conversation.think = answering.think
        budget = answering.think_budget
        options = replace(options, think_budget=budget, shows_control=bool(tools))
        request = Request(
            conversation,
            answering.for_an_answer(version),
            answering.max_tokens,
            turn.text,
            dialogue.tokens(turn),
            model=writer or "",
            chat=dialogue.chat,
            options=options,
            tools=tuple(tools),
            documents=documents,
        )
        continued, turn.ending, turn.is_growing = turn.ending, "", True
        models = tuple(turn.model.split(", "))
        return cls(dialogue, Answer(request), turn, continued if turn.text else None, models)

    def follow(self) -> None:
        """Let the turn have the text that the answer has by now."""
        self.turn.text = self.answer.request.partial + self.answer.text
        if not self.answer.request.partial:
            self.turn.model = self.answer.model or self.turn.model
        elif self.answer.text:  # it may go on with what another model wrote
            names = dict.fromkeys([*self.models, self.answer.model])
            self.turn.model = ", ".join(filter(None, names))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that it ends with, once it has ended by itself."""
        answer = self.answer
        ended_by_itself = answer.finish_reason is FinishReason.STOP and not answer.is_stopped
        tools = answer.request.tools if ended_by_itself else ()
        return calls_in(self.turn.text, answer.form, tools) if tools else ()

    @property
    def is_unbegun(self) -> bool:
        """Whether there was no text of the answer yet when it was followed last."""
        return self.turn.text == self.answer.request.partial

    @property
    def reading(self) -> str:
        """How much of the prompt has been read, once that takes long; empty otherwise."""
        done, total = self.answer.read
        is_long = time.monotonic() - self.started_at >= _LONG_SECONDS
        if self.answer.stage not in (Stage.QUEUED, Stage.READING) or not is_long:
            return ""
        return f"reading {100 * done // total} %" if done and total else "reading…"

    def save(self) -> None:
        """Save what the answer has so far; less often while saving fails."""
        now, dialogue = time.monotonic(), self.dialogue
        is_due = not dialogue.fault or now - self.saved_at >= _RETRY_SECONDS
        if is_due and len(self.turn.text) > self.saved:
            self.saved, self.saved_at = len(self.turn.text), now
            self._note_lossy()
            dialogue.save(self.turn)

    def drop_oldest(self) -> bool:
        """Leave out of later prompts what this one had no room for; returns whether it is more."""
        dialogue = self.dialogue
        more = self.answer.dropped - self.dropped
        if more <= 0 or self.turn not in dialogue.turns:
            return False
        dialogue.drop_oldest(more)
        self.dropped = self.answer.dropped
        return True

    def close(self) -> None:
        """Save the answer with its ending."""
        turn = self.turn
        turn.ending, turn.tokens = self.ending(), self.answer.token_ids
        self._note_lossy()
        self.dialogue.save(turn, is_broken_off=not turn.ending)

    def _note_lossy(self) -> None:
        """Keep in the turn that a lossy rule was used: the app may be killed before the end."""
        if rule := self.answer.reply.lossy:
            self.turn.lossy = rule.words

    def ending(self) -> str:
        """The line below the answer, at its end; empty for an answer that an error broke off."""
        if self.is_unbegun and self.continued is not None:
            return self.continued
        if self.answer.error is not None or (self.is_unbegun and self.answer.is_stopped):
            return ""
        reason = FinishReason.CANCELLED if self.answer.is_stopped else self.answer.finish_reason
        ending = wording.ending(self.answer.metrics, reason, continued=self.continued)
        label = "" if self.answer.is_stopped else self.label
        return joined([label, ending or "the model gave no answer"])
