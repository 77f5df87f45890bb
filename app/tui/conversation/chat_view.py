"""Questions on their way to the engine, and its answers on their way to screen and history."""

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from app.answer import Answer, Request
from app.attachments import with_files
from app.tui import wording
from app.tui.conversation.dialogue import Turn
from app.tui.conversation.message import GrowingMessage, Message
from app.tui.prompt.prompt import PromptArea
from backends.base import SpecchatError
from decoding.events import FinishReason
from decoding.lossy_rule import LossyRule
from decoding.sampling import SamplingSettings

if TYPE_CHECKING:
    from app.tui.screens.chat_screen import ChatScreen

_SAVE_SECONDS = 0.75
"""With a late tick and the time to write, a second at most is lost if the app is killed."""


@dataclass(slots=True)
class Work:
    """The answer at work and where it is shown and kept. asked: the question as it was typed.

    begun: the line below the answer that it goes on with.
    """

    answer: Answer
    turn: Turn
    message: GrowingMessage
    asked: str = ""
    begun: str = ""
    saved_at: float = 0.0
    dropped: int = 0
    """Messages that had to leave the context for it, as far as the screen tells."""

    def ending(self, reason: FinishReason | None) -> str:
        """The line below the answer, as far as it came."""
        error = "" if self.answer.error is None else str(self.answer.error)
        begun = self.begun if self.answer.request.partial else None
        return wording.ending(self.answer.live, reason, error, begun)


class Exchange:
    """At most one answer is at work; what is asked meanwhile waits its turn."""

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        self.work: Work | None = None
        self.last_answer: Answer | None = None
        self._waiting: deque[str] = deque()
        self._warned_of: LossyRule | None = None

    @property
    def answer(self) -> Answer | None:
        """The answer at work, else the last one."""
        return self.work.answer if self.work is not None else self.last_answer

    @property
    def waiting(self) -> list[str]:
        """Questions that were sent and not asked yet."""
        return list(self._waiting)

    async def send(self, text: str) -> None:
        """Say something; while an answer is at work it waits its turn."""
        screen = self._screen
        if self.work is not None:
            self._waiting.append(text)
            screen.notify("Sent when the answer is done; Esc stops it.")
            return
        try:
            prepared = with_files(text)
        except SpecchatError as error:
            self._to_prompt(text)
            screen.notify(str(error), severity="error", timeout=10)
            return
        screen.dialogue.add("user", prepared)
        await screen.query("#hint, .fault").remove()
        await screen.transcript.add(Message("user", prepared))
        await self.ask(asked=text)

    async def ask(self, partial: str = "", asked: str = "", begun: str = "") -> None:
        """Have the last question answered, or a partial answer continued.

        begun: the line below the partial answer.
        """
        screen, dialogue = self._screen, self._screen.dialogue
        conversation = dialogue.conversation(len(dialogue.turns))
        request = Request(
            conversation, screen.settings, screen.max_tokens, partial, chat=dialogue.chat
        )
        turn = dialogue.add("assistant", partial)
        self._warn(request.settings)
        message = GrowingMessage(partial)
        await screen.transcript.add(message)
        answer = screen.engine.ask(request)
        turn.ending = wording.lossy_part(begun)
        self.work = Work(answer, turn, message, asked, begun)
        screen.figures.begin()

    def _warn(self, settings: SamplingSettings) -> None:
        """Say once what a lossy rule means, and again for another one."""
        rule = settings.lossy_in_effect
        if rule is not None and rule != self._warned_of:
            self._screen.notify(rule.warning, severity="warning")
        self._warned_of = rule or self._warned_of

    def abandon(self) -> list[str]:
        """Stop the answer at work, for good; what was said is saved.

        Returns questions that were not asked yet.
        """
        unasked = self.waiting
        self._waiting.clear()
        work, self.work = self.work, None
        self.last_answer = None
        if work is not None:
            work.answer.stop()
            work.turn.text += work.answer.take()
            work.turn.ending = work.ending(FinishReason.CANCELLED)
            self._screen.dialogue.save(work.turn)
        return unasked

    async def drain(self) -> None:
        """Take what the engine said since the last time; call it on a timer."""
        work = self.work
        if work is None:
            return
        answer = work.answer
        is_done = answer.is_done  # before the text: nothing can come after it
        text = answer.take()
        work.turn.text += text
        if answer.dropped > work.dropped:
            work.dropped = answer.dropped
            await self._forget(answer.dropped)
        if is_done:
            await self._finish(work, text)
            return
        now = time.monotonic()
        if text and now - work.saved_at >= _SAVE_SECONDS:
            work.saved_at = now
            # Should nothing more be saved, that the answer is lossy still is.
            work.turn.ending = wording.lossy_part(work.ending(None))
            self._screen.dialogue.save(work.turn)
        await work.message.grow(text)  # after it was saved: what is shown is not lost

    async def _forget(self, dropped: int) -> None:
        """Mark what the model no longer sees."""
        dialogue = self._screen.dialogue
        dialogue.forget(dropped)
        await self._screen.transcript.mark_window(len(dialogue.turns) - dialogue.forgotten)

    async def _finish(self, work: Work, text: str) -> None:
        answer = work.answer
        if work.turn.text or not (answer.error or answer.is_stopped):
            await self._end(work, text)
        else:
            await self._give_back(work)
        self._screen.news.tell(answer.note)
        if self.work is not work:  # another chat was opened meanwhile
            return
        self.work = None  # last of all: what is sent before waits its turn
        self.last_answer = answer
        if self._waiting and answer.error is None and not answer.is_stopped:
            await self.send(self._waiting.popleft())
        elif self._waiting:
            self._to_prompt("\n\n".join(self._waiting))
            self._waiting.clear()

    async def _end(self, work: Work, text: str) -> None:
        """Show the last of an answer and how it ended."""
        answer = work.answer
        await work.message.grow(text, is_last=True)
        await work.message.settle()
        ending = work.ending(answer.finish_reason)
        if work.dropped:
            ending += f" · {work.dropped} of the oldest messages left the context"
        work.turn.ending = ending
        work.message.show_ending(ending)
        self._screen.dialogue.save(work.turn)

    async def _give_back(self, work: Work) -> None:
        """A question without a word of answer goes back to the prompt; nothing typed is lost."""
        dialogue, transcript = self._screen.dialogue, self._screen.transcript
        place = dialogue.turns.index(work.turn)
        question = dialogue.turns[place - 1] if place else None
        first = place if question is None or question.role != "user" else place - 1
        if question is not None and first < place:
            self._to_prompt(work.asked or question.text)
        shown = transcript.messages
        await transcript.remove_from(shown[max(0, len(shown) - (len(dialogue.turns) - first))])
        dialogue.cut(first)
        if work.answer.error is not None:
            await transcript.mount(Static(Content(str(work.answer.error)), classes="fault"))

    def _to_prompt(self, text: str) -> None:
        """Put a text before what is being typed."""
        area = self._screen.query_one(PromptArea)
        area.write("\n\n".join(filter(None, [text, area.text])))
