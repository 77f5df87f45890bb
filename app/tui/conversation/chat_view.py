"""A chat on the screen: questions go to the engine, answers are shown and saved as they grow."""

import asyncio
import time
from collections import deque

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from app.chat.attachments import with_files, without_files
from app.engine.answer import Answer, Request
from app.engine.engine import Engine
from app.settings.answering import Answering
from app.tui import wording
from app.tui.conversation.dialogue import Dialogue
from app.tui.conversation.growing_message import GrowingMessage
from app.tui.conversation.message_view import MessageView
from app.tui.conversation.pending_answer import PendingAnswer
from app.tui.conversation.transcript import Transcript
from backends.base import SpecchatError
from decoding.events import FinishReason
from decoding.sampling.lossy_rule import LossyRule

_UPDATE_SECONDS = 1 / 12

_SAVE_SECONDS = 0.75
"""Between two saves of a growing answer: a killed app loses a second at most."""


class ChatView(Vertical):
    """Transcript of a chat, the answer in progress and the questions queued behind it."""

    class Opened(Message):
        """Another chat is shown."""

    class AnswerStarted(Message):
        """An answer was requested from the engine."""

    class QuestionReturned(Message):
        """A question was not answered, and belongs back in the prompt."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, engine: Engine, dialogue: Dialogue, defaults: Answering) -> None:
        super().__init__()
        self.dialogue = dialogue
        self.defaults = defaults
        """Settings of chats that have none of their own."""
        self.transcript = Transcript()
        self.pending: PendingAnswer | None = None
        self.last_answer: Answer | None = None
        self._engine = engine
        self._queue: deque[str] = deque()
        self._sending = asyncio.Lock()
        self._warned_of: LossyRule | None = None
        self._reported_note = ""
        self._reported_fault = ""

    def compose(self) -> ComposeResult:
        yield self.transcript

    def on_mount(self) -> None:
        self.set_interval(_UPDATE_SECONDS, self._update)

    @property
    def answer(self) -> Answer | None:
        """The answer in progress, else the last one."""
        return self.pending.answer if self.pending is not None else self.last_answer

    @property
    def answering(self) -> Answering:
        """Settings of the next answer."""
        return self.defaults.changed(self.dialogue.own)

    @property
    def queued(self) -> list[str]:
        """Questions that wait for the answer in progress."""
        return list(self._queue)

    def greet(self, text: str) -> None:
        """Show a hint in an empty chat."""
        if not self.dialogue.turns:
            self.transcript.show_hint(text)

    # Commands

    async def open(self, dialogue: Dialogue) -> None:
        """Show another chat."""
        queued = self.abandon()
        self.dialogue = dialogue
        if queued:
            self.post_message(self.QuestionReturned("\n\n".join(queued)))
        await self.transcript.show(
            [MessageView(turn.role, turn.text, turn.ending) for turn in dialogue.turns]
        )
        self.post_message(self.Opened())

    async def send(self, text: str) -> None:
        """Ask a question, or queue it while an answer is in progress.

        Raises:
            SpecchatError: a file that it names cannot be added; it is not asked.
        """
        async with self._sending:
            if self.pending is not None:
                self._queue.append(text)
                self.notify("Sent when the answer is done; Esc stops it.")
                return
            prepared = with_files(text)
            self.dialogue.add("user", prepared)
            await self.transcript.clear_notices()
            await self.transcript.add(MessageView("user", prepared))
            await self._ask(typed=text)

    async def regenerate(self) -> None:
        """Answer the last question again."""
        index = self.last_turn("user")
        if index is not None and self.is_idle():
            await self._cut(index + 1)
            await self._ask()

    async def take_last_question(self) -> str | None:
        """Remove the last question with its answer, and return it as it was typed."""
        index = self.last_turn("user")
        if index is None or not self.is_idle():
            return None
        text = without_files(self.dialogue.turns[index].text)
        await self._cut(index)
        return text

    async def continue_answer(self) -> None:
        """Continue the last answer."""
        index = self.last_turn("assistant")
        if index is None or not self.is_idle():
            return
        turn = self.dialogue.turns[index]
        if turn is not self.dialogue.turns[-1]:
            self.notify("The last question has no answer yet.")
            return
        await self._cut(index)
        await self._ask(turn.text, continued=turn.ending if turn.text else None)

    async def toggle_origins(self) -> None:
        """Colour the tokens of the last answer by origin, or show the answer as before."""
        answer, messages = self.last_answer, self.transcript.messages
        if self.pending is not None or answer is None or not messages or not answer.pieces:
            self.notify("There is no finished answer to colour.")
            return
        await messages[-1].toggle_origins(answer.pieces)

    def stop(self) -> None:
        """Stop the answer in progress; its text so far stays."""
        if self.pending is not None:
            self.pending.answer.stop()

    def is_idle(self) -> bool:
        """Whether no answer is in progress; if one is, the user is notified."""
        if self.pending is not None:
            self.notify("An answer is in progress; Esc stops it.")
        return self.pending is None

    def last_turn(self, role: str) -> int | None:
        """Index of the last turn of a role; if there is none, the user is notified."""
        index = self.dialogue.last(role)
        if index is None:
            what = "question" if role == "user" else "answer"
            self.notify(f"There is no {what} in this chat yet.")
        return index

    def abandon(self) -> list[str]:
        """Stop and save the answer in progress, show no more of it; returns queued questions."""
        queued = self.queued
        self._queue.clear()
        pending, self.pending = self.pending, None
        self.last_answer = None
        if pending is not None:
            pending.answer.stop()
            pending.turn.text += pending.answer.take()
            pending.turn.ending = pending.ending(FinishReason.CANCELLED)
            if pending.turn.text:  # else the chat ends with the question
                self.dialogue.save(pending.turn)
        return queued

    async def _cut(self, index: int) -> None:
        """Delete the turns from an index on, in the transcript and in the dialogue."""
        await self.transcript.remove_last(len(self.dialogue.turns) - index)
        self.dialogue.cut(index)

    # The answer in progress

    async def _ask(self, partial: str = "", typed: str = "", continued: str | None = None) -> None:
        """Have the last question answered; partial: the beginning of the answer."""
        dialogue, answering = self.dialogue, self.answering
        request = Request(
            dialogue.conversation(len(dialogue.turns)),
            answering.sampling,
            answering.max_tokens,
            partial,
            chat=dialogue.chat,
        )
        turn = dialogue.add("assistant", partial)
        self._warn_if_lossy(answering.sampling.lossy_in_effect)
        message = GrowingMessage(partial)
        await self.transcript.add(message)
        turn.ending = wording.lossy_part(continued or "")
        self.pending = PendingAnswer(self._engine.ask(request), turn, message, typed, continued)
        self.post_message(self.AnswerStarted())

    def _warn_if_lossy(self, rule: LossyRule | None) -> None:
        """Warn of a lossy rule when it is first used, and when it changes."""
        if rule is not None and rule != self._warned_of:
            self.notify(rule.warning, severity="warning")
        self._warned_of = rule or self._warned_of

    async def _update(self) -> None:
        """Show and save the text that the engine has produced since the last update."""
        pending = self.pending
        if pending is None:
            return
        loaded = self._engine.status.loaded
        if loaded is not None:
            self.dialogue.set_model(loaded.name)
        answer = pending.answer
        is_done = answer.is_done  # before the text: nothing can come after it
        text = answer.take()
        pending.turn.text += text
        if answer.dropped > pending.dropped:
            pending.dropped = answer.dropped
            await self._drop_oldest(answer.dropped)
        if is_done:
            await self._finish(pending, text)
            return
        self._save_if_due(pending, text)
        await pending.message.grow(text)  # saved first: text on the screen is never lost

    async def _drop_oldest(self, messages: int) -> None:
        self.dialogue.drop_oldest(messages)
        await self.transcript.mark_window(len(self.dialogue.turns) - self.dialogue.dropped)

    def _save_if_due(self, pending: PendingAnswer, text: str) -> None:
        now = time.monotonic()
        if text and now - pending.saved_at >= _SAVE_SECONDS:
            pending.saved_at = now
            # Without a further save, the chat still shows that the answer is lossy.
            pending.turn.ending = wording.lossy_part(pending.ending(None))
            self.dialogue.save(pending.turn)

    async def _finish(self, pending: PendingAnswer, text: str) -> None:
        answer = pending.answer
        if pending.turn.text or not (answer.error or answer.is_stopped):
            await self._complete(pending, text)
        else:
            await self._withdraw(pending)
        self._report_problems(answer.note)
        if self.pending is not pending:  # another chat was opened meanwhile
            return
        self.pending = None  # only now: questions sent before this are queued
        self.last_answer = answer
        await self._send_queued(is_answered=answer.error is None and not answer.is_stopped)

    async def _complete(self, pending: PendingAnswer, text: str) -> None:
        """Show the end of an answer and its ending."""
        await pending.message.grow(text, is_last=True)
        await pending.message.settle()
        pending.turn.ending = pending.final_ending()
        pending.message.show_ending(pending.turn.ending)
        self.dialogue.save(pending.turn)

    async def _withdraw(self, pending: PendingAnswer) -> None:
        """Return a question that got no text as an answer to the prompt."""
        turns = self.dialogue.turns
        first = turns.index(pending.turn)
        if first and turns[first - 1].role == "user":
            first -= 1
            self.post_message(self.QuestionReturned(pending.typed or turns[first].text))
        await self._cut(first)
        if pending.answer.error is not None:
            await self.transcript.show_error(str(pending.answer.error))

    async def _send_queued(self, *, is_answered: bool) -> None:
        """Ask the next queued question; if the last got no whole answer, return all of them."""
        if not self._queue:
            return
        if not is_answered:
            self.post_message(self.QuestionReturned("\n\n".join(self._queue)))
            self._queue.clear()
            return
        question = self._queue.popleft()
        try:
            await self.send(question)
        except SpecchatError as error:
            self.post_message(self.QuestionReturned(question))
            self.notify(str(error), severity="error", timeout=10)

    def _report_problems(self, note: str) -> None:
        """Notify once of the chat template's limits and of failures to save the chat."""
        if note and note != self._reported_note:
            self._reported_note = note
            self.notify(note, severity="warning", timeout=10)
        fault = self.dialogue.fault
        if fault and fault != self._reported_fault:
            self.notify(f"This chat is not saved: {fault}", severity="error", timeout=10)
        self._reported_fault = fault
        history = self.dialogue.history
        if history is not None and (news := history.news()):
            self.notify(news, severity="warning", timeout=30)
