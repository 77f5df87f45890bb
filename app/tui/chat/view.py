"""A chat on the screen: questions go to the engine, answers are shown and saved as they grow."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from app.ahead.expected import Expected
from app.chat.attachments import Attachment, AttachmentKind, Attachments, with_pastes
from app.chat.conversation import Conversation, ReplyOptions
from app.chat.read_all import Plan
from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import Asked
from app.dialogue.tree import ASSISTANT, TOOL, USER, Change, Turn, path_to
from app.engine.answer import Answer
from app.engine.status import Phase
from app.history import HistoryError
from app.history.records import Queued, title_of
from app.tui.chat.answer import AnswerView
from app.tui.chat.pending import PendingAnswer, Several
from app.tui.chat.reading import Reading, pastes_of
from app.tui.chat.shown import ShownChat
from app.tui.widgets import in_turn
from app.tui.wording import counted, joined, quoted_title, remedy_here
from app.wording import CONTINUES
from backends.base import SpecchatError, UsageError

_UPDATE_SECONDS = 1 / 12


_REFRESH_SECONDS = 1.0
"""Between two looks at what other windows wrote."""

_FOLDER_SECONDS = 2.0
"""Longest wait for files of a folder that are new: then what is there is searched, and told."""

_SHOWS_AGAIN = "Ctrl+Z shows it."

_READ_ALL_SECONDS = 30.0
"""That /read all waits for a folder."""

_SUMMARISE = (
    "Summarise this conversation so that it can be continued from the summary alone: what was "
    "asked, what was found or decided, every name, figure and piece of code that is still needed."
)

BUSY = "your question waits for", "an answer is in progress"
"""How the errors begin that are over once no answer is in progress."""


class ChatView(ShownChat):
    """A chat that goes on: questions go to the engine, answers are shown and saved as they grow."""

    async def on_mount(self) -> None:
        for attribute in ("is_panel_shown", "edited"):
            self.watch(self.store, attribute, self._refresh_views)
        self.set_interval(_UPDATE_SECONDS, in_turn(self, self._update))
        self.set_interval(_REFRESH_SECONDS, in_turn(self, self._follow_other_windows))
        await self._show()

    @property
    def may_ask(self) -> bool:
        """Whether there is a model, and each tool server of the chat has started, or failed."""
        return self.has_model and self.toolbox.is_ready(self.answering.tools)

    def require_idle(self) -> None:
        """Raise a UsageError if an answer is in progress, or waits for that to a program."""
        if program := self.waits_for:
            raise UsageError(f"{BUSY[0]} {program}", "", "Esc takes it back.")
        if not self.is_idle:
            raise UsageError(BUSY[1], "", "Esc stops it.")

    def require_model(self) -> None:
        """Raise a UsageError with the reason if no model is loaded."""
        if self.has_model:
            return
        if self.engine.status.phase is Phase.LOADING:
            raise UsageError("the model is still loading")
        raise UsageError("no model is loaded", "", "Ctrl+L chooses one.")

    @property
    def unsaved(self) -> str:
        """Why a chat of this session is not saved; empty if all are."""
        faults = (one.fault for one in (self.dialogue, *self._unsaved) if one.fault)
        return next(faults, "")

    @property
    def is_behind(self) -> bool:
        """Whether quitting now would lose something of a chat."""
        return any(one.is_behind for one in (self.dialogue, *self._unsaved))

    # Commands

    async def open(self, dialogue: Dialogue, way_back: str = "") -> None:
        """Show another chat; an answer in progress goes on, unless more depends on it.

        way_back: tells how that is shown again.
        """
        async with self._changing:
            self._leave(way_back)
            await self._open(dialogue)

    async def reopen(self, dialogue: Dialogue) -> None:
        async with self._changing:
            self._leave()
            await self._reopen(dialogue)

    def growing_chat(self, chat: int) -> Dialogue | None:
        """The chat of that number, if an answer in it is in progress."""
        return next((one.dialogue for one in self.growing if one.dialogue.chat == chat), None)

    def stop_in(self, dialogue: Dialogue) -> None:
        """Stop the answers in progress in a chat that was left."""
        for pending in self.growing:
            if pending.dialogue is dialogue:
                pending.answer.stop()

    async def send(self, text: str, attachments: Attachments = ()) -> None:
        """Ask a question, after those that are queued.

        It is queued while an answer is in progress, or the model or a tool server is loaded.
        """
        async with self._changing:
            stopping = self.pending
            if stopping is not None and stopping.answer.is_stopped and not stopping.is_unbegun:
                self._keep_pending()  # what is sent after a stop does not wait for its end
            can_ask = self.is_idle and self.may_ask
            if can_ask and not self.dialogue.queue:
                await self._remove_cards()
                await self._send(text, attachments)
            else:
                self.dialogue.enqueue(text, attachments)
                self._awaits_model = self.is_idle
            if can_ask and self.is_idle:
                await self._send_next()
            await self._show(follow=True)

    async def send_next(self) -> None:
        async with self._changing:
            if self.is_idle and self.may_ask:
                await self._send_next()
            elif self.is_idle:
                self._awaits_model = bool(self.dialogue.queue)

    async def take_back(self) -> Queued | None:
        async with self._changing:
            queued = self.dialogue.take_back()
            self._awaits_model = self._awaits_model and bool(self.dialogue.queue)
            await self._show()
            return queued

    async def regenerate(self, models: Sequence[str] = ()) -> bool:
        """Add other answers next to the last one; if that is in progress, it is kept.

        models: those that write one each, of which one is then picked; none: the one in use, which
        adds one. Returns whether they are begun.
        """
        async with self._changing:
            last = self.last_turn()
            while last is not None and last.role == TOOL:  # not read yet: its caller is answered
                last = last.parent
            if last is None or not self.has_model:
                return False
            if self.pending is not None and self.pending.is_unbegun:
                self.app.notify("The answer has not begun yet.")
                return False
            self._break_off(_SHOWS_AGAIN)
            await self._remove_cards()
            instead = last if last.role == ASSISTANT else None
            turns = [self._ask_again(last)] if not models else []
            for model in models:
                turns.append(self._ask_again(turns[-1] if turns else last, model, instead))
            if models:
                before = [last] if instead is not None and len(models) == 1 else []
                self.several = Several([*(one.model for one in before), *models], before + turns)
            if instead is not None:
                self._remember("regenerated an answer", last, turns[-1])
            await self._show(follow=True)
            return True

    async def pick(self, turn: Turn) -> None:
        """Show one of several answers; the others stay versions, and what is queued is sent.

        If it is in progress, it goes on; any other stops.
        """
        async with self._changing:
            several = self.several
            if (picked := self.pending_of(turn)) is not None:
                self._keep_pending(picked)
            else:
                self._break_off(_SHOWS_AGAIN)
                is_whole = several and not (several.fault or several.is_stopped)
                self._awaits_model = bool(is_whole and self.dialogue.queue)
            if turn in self.dialogue.versions(turn):  # else it was withdrawn
                self.dialogue.show(turn)
            await self._show(follow=True)

    async def edit(self, turn: Turn, text: str, attachments: Attachments = ()) -> None:
        """Add another version of a question and answer it; an answer in progress is kept."""
        async with self._changing:
            self._break_off(_SHOWS_AGAIN)
            await self._remove_cards()
            found = await self._found(text, attachments, path_to(turn)[:-1])
            question = self.dialogue.add_version(turn, text, found)
            self._ask(self.dialogue.add(ASSISTANT, ""), question=question, instead=turn)
            self._remember("edited a question", turn, question)
            await self._show(follow=True)

    async def continue_answer(self) -> None:
        """Let the selected answer grow, else the last one; a question without one gets it."""
        async with self._changing:
            chosen = self.selected
            if chosen is None or chosen.role != ASSISTANT:
                chosen = self.last_turn()
            if chosen is None or not (self.is_idle and self.has_model):
                return
            await self._remove_cards()
            if self.asked is not None:
                await self._next_call()
                return
            if chosen.role != ASSISTANT:
                chosen = self.dialogue.add(ASSISTANT, "")
            self._ask(chosen)
            await self._show(follow=chosen is self.last_turn())

    def stop(self) -> None:
        """Stop the answers in progress in this chat; their text stays, and so does the queue.

        One that still waits for another answer ends at once, as if it had not been asked.
        """
        for pending in self.own_growing:
            pending.answer.stop()
        if self.calling is not None:
            self.calling[1].cancel()

    def abandon(self) -> None:
        """Stop and save the answers in progress: the app is closing."""
        self._keep_pending()
        for pending in [*self.growing]:
            self._keep(pending)
        self._save_unsaved()
        if self.dialogue.fault:
            self.dialogue.refresh()
        self.libraries.close()

    async def show_version(self, turn: Turn, step: int) -> None:
        async with self._changing:
            versions = self.dialogue.versions(turn)
            place = versions.index(turn) + step if turn in versions else -1
            if 0 <= place < len(versions):
                is_selected = self.selected is turn
                self.dialogue.show(versions[place])
                follows = self.follows_answer and not is_selected
                await self._show(follow=follows, stays=not follows)
                view = self.transcript.view_of(versions[place])
                if is_selected and view is not None:
                    view.focus(scroll_visible=False)  # it is in view, and not laid out yet

    async def show_turn(self, turn: Turn) -> None:
        async with self._changing:
            self.dialogue.show(turn)
            await self._show(stays=True)

    async def read_all(self) -> None:
        """Note what each part of all that is attached says; answer the last question from that."""
        async with self._changing:
            self.require_model()
            self.require_idle()
            asked, last = self.last_turn(USER), self.answer
            if asked is None:
                raise UsageError("there is no question yet", "", "Ask it, then /read all.")
            versions = [one for one in self.dialogue.versions(asked) if one.text == asked.text]
            about = self.asked_with("", (), (*path_to(asked)[:-1], *versions))
            texts = await asyncio.to_thread(self.libraries.all_of, about, _READ_ALL_SECONDS)
            self._end_several()
            await self._remove_cards()
            attached = [Attachment(AttachmentKind.FILE, *one) for one in texts.items()]
            await self._read(asked, tuple(attached), last)
            if self.reading is not None:
                left = self.reading.time_left(self.engine.status.loaded)
                parts = counted(len(self.reading.plan.parts), "part")
                told = f"{parts} to read, {left or 'how long that takes is not known yet'}"
                self.app.notify(f"{told}. Esc stops; notes stay.", markup=False)
            self._remember("read all", asked, self.last_turn(USER) or asked)
            await self._show(follow=True)

    async def _read(self, asked: Turn, attached: Attachments, last: Answer | None) -> None:
        """Answer a question from all that is attached: at once if it fits, else from notes on it.

        last: the answer before, whose rates are those of the next one.
        """

        async def count(text: str) -> int:
            return await asyncio.wrap_future(self.engine.count(text))

        dialogue, loaded = self.dialogue, self.engine.status.loaded
        n_ctx = loaded.context_size if loaded is not None else 0
        question = with_pastes(asked.text, asked.attachments)
        texts = [(one.name, one.text) for one in attached]
        plan = await Plan.of(question, dialogue.system, texts, n_ctx, count)
        if not plan.is_whole:
            await self._read_on(Reading.of(plan, asked, dialogue, last))
            return
        attachments = (*pastes_of(asked), *attached)
        versions = dialogue.versions(asked)
        known = next((one for one in versions if one.attachments == attachments), None)
        self.reading = None
        turn = known or dialogue.add_version(asked, asked.text, attachments)
        dialogue.show(turn)
        if turn.shown is None or turn.shown.is_interrupted:
            self._ask_again(turn.shown or turn)
        else:
            self.app.notify("All of it was read for this answer.")

    async def _read_on(self, reading: Reading) -> None:
        """Read the next part without a note, or go on to the notes if there is none."""
        self.reading = reading
        if reading.next():
            self._ask(reading.begin_note(self.dialogue), reading=reading)
        else:
            await self._read(reading.asked, reading.notes, reading.last)

    async def _go_on_reading(self, reading: Reading, last: Answer, is_complete: bool) -> None:
        reading.last = last
        if not is_complete:
            self._end_reading()
            self.app.notify(f"Stopped at {reading.label}. /read all goes on there.")
            return
        try:
            await self._read_on(reading)
        except UsageError as error:
            self._end_reading()
            await self.show_fault(error.summary, error.remedy)

    def _end_reading(self) -> None:
        reading, self.reading = self.reading, None
        if reading is not None and not reading.turn.children:
            _drop(self.dialogue, reading.turn, reading.asked)

    async def compact(self) -> None:
        """Continue in a new chat that begins with a summary of this one, which is kept."""
        async with self._changing:
            if not (self.is_idle and self.dialogue.turns and self.has_model):
                return
            await self._remove_cards()
            old = self.dialogue
            conversation = old.conversation()
            conversation.add(USER, _SUMMARISE)
            new = old.fresh()
            new.set_system(old.system)
            new.set_own(old.own)
            new.set_folder(old.folder)
            title = old.title
            await self._open(new)
            question = new.add(USER, f"Summarise the chat “{title}”.")
            answer = new.add(ASSISTANT, "")
            self._ask(answer, question=question, conversation=conversation, previous=old)
            self._changes.note("summarised a chat", self.reopen, old, new)
            await self._show(follow=True)

    def edit_question(self, turn: Turn | None = None) -> None:
        question = turn or self.last_turn(USER)
        if question is not None:
            self._give_back(question, question)

    async def reload(self) -> None:
        """Show what was done to this chat elsewhere; a new chat if it is gone."""
        async with self._changing:
            try:
                self.dialogue.reread()
            except HistoryError:
                self._keep_pending()
                await self._open(self.dialogue.fresh())
                return
            await self._show()

    async def dismiss_fault(self) -> bool:
        """Remove the error as the user wants; False if there is none, or no model without it."""
        if not self._cards.children or not self.has_model:
            return False
        await self.clear_fault()
        return True

    # Turns

    async def _send(self, text: str, attachments: Attachments) -> None:
        for call in self.dialogue.open_calls:
            self.dialogue.close_call(call, "The user went on without this call.", "not run")
        found = await self._found(text, attachments, self.dialogue.turns)
        question = self.dialogue.add(USER, text, found)
        self._ask(self.dialogue.add(ASSISTANT, ""), question=question)

    async def _found(
        self, text: str, attachments: Attachments, turns: Sequence[Turn]
    ) -> Attachments:
        """What a question that follows turns is sent along with, folders as they are now."""
        asked = self.asked_with(text, attachments, turns)
        found, told = await asyncio.to_thread(self.libraries.found, asked, _FOLDER_SECONDS)
        if told:
            self.app.notify(joined(told), markup=False)
        return found

    def asked_with(self, text: str, files: Attachments, before: Sequence[Turn]) -> Asked:
        loaded = self.engine.status.loaded
        n_ctx = loaded.context_size if loaded is not None else None
        return Asked(self.dialogue, text, files, before, n_ctx)

    async def _send_next(self) -> None:
        self._awaits_model = False
        queued = self.dialogue.next_queued()
        if queued is not None:
            await self._remove_cards()
            await self._send(queued.text, queued.attachments)
            await self._show()

    def _ask(
        self,
        turn: Turn,
        *,
        question: Turn | None = None,
        instead: Turn | None = None,
        conversation: Conversation | None = None,
        previous: Dialogue | None = None,
        writer: str | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.several = None
        answering = self.answering
        if reading is not None:
            conversation = reading.plan.conversation(reading.number, self.dialogue.system)
            answering = reading.answering(answering)
        # What specchat itself asks for, such as a summary, is free text.
        options = ReplyOptions(grammar=self.grammar if conversation is None else None)
        tools = self.offered if conversation is None and writer is None else ()
        documents = self.libraries.documents
        pending = PendingAnswer.of(
            self.dialogue, turn, answering, options, conversation, writer, tools, documents
        )
        pending.question, pending.instead, pending.previous = question, instead, previous
        pending.label = reading.label if reading is not None else ""
        self.growing.append(pending)
        answer = pending.answer
        # The question is painted first: steps of the engine's thread would make the screen wait by
        # as long again (measured). Meanwhile the rest of its prompt is read, which is kept.
        told, now = answer.request.conversation, time.monotonic()
        expected = Expected(told, now, is_typing=False, tools=tools)
        if not answer.request.model:
            self.engine.expect(expected)
        self.call_after_refresh(self.engine.begin, answer)

    def _ask_again(
        self, last: Turn, writer: str | None = None, instead: Turn | None = None
    ) -> Turn:
        """Ask for a version of an answer, or for the first one to a question."""
        if last.role == USER:
            turn = self.dialogue.add(ASSISTANT, "")
        else:
            turn = self.dialogue.add_version(last, "")
            instead = last if writer is None else instead
        self._ask(turn, instead=instead, writer=writer)
        return turn

    def _note_end(self, several: Several, pending: PendingAnswer) -> None:
        """Note how one of several answers has ended."""
        answer = pending.answer
        if pending.turn not in self.dialogue.versions(pending.turn):  # it was withdrawn
            several.remove(pending.turn)
        if answer.error is not None:
            several.fault = joined([several.fault, answer.error.summary])
        several.is_stopped = several.is_stopped or answer.is_stopped
        if self.is_idle:
            self._take_back_model(several)

    def _end_several(self) -> None:
        self._end_reading()
        several, self.several = self.several, None
        if several is not None:
            self._take_back_model(several)

    def _take_back_model(self, several: Several) -> None:
        if any(several.models):  # else it would only keep others from being written meanwhile
            self.engine.take_back_model()

    def _remember(self, name: str, old: Turn, new: Turn) -> None:
        """Let the user go back from a new version to an old one, and forward to what was shown."""
        dialogue = self.dialogue

        async def undo() -> None:
            nonlocal new
            versions = dialogue.versions(old)
            new = next((turn for turn in dialogue.turns if turn in versions), new)
            await self._go_to(dialogue, old)

        self._changes.add(Change(name, undo, lambda: self._go_to(dialogue, new)))

    async def _go_to(self, dialogue: Dialogue, turn: Turn) -> None:
        async with self._changing:
            if dialogue is not self.dialogue:
                self._leave()
                await self._reopen(dialogue)
            self._keep_pending()
            if turn in dialogue.versions(turn):  # else it was withdrawn
                dialogue.show(turn)
            await self._show()

    async def _reopen(self, dialogue: Dialogue) -> None:
        with suppress(HistoryError):  # it was removed: saving brings it back
            dialogue.reread()  # it may have gone on, opened a second time
        await self._open(dialogue)

    async def _open(self, dialogue: Dialogue) -> None:
        if self.dialogue.fault and self.dialogue is not dialogue:
            self._unsaved.append(self.dialogue)
        self._end_several()
        self.store.edited = None
        self.dialogue = dialogue
        self._answers.clear()
        self._searched.clear()
        self._awaits_model = False
        await self._remove_cards()
        await self._show(follow=True)

    # The answers in progress

    async def _update(self) -> None:
        """Follow the answers in progress, or send what waits for a model."""
        if self._changing.locked():
            return
        async with self._changing:
            await self._tell_faults()
            was_idle = self.pending is None
            for pending in [*self.growing]:
                if pending in self.growing:
                    await self._follow(pending)
            if self.calling is not None:
                await self._follow_call(*self.calling)
            elif was_idle and self._awaits_model and self.may_ask:
                await self._send_next()
            elif was_idle:
                await self._show_queue()

    async def _follow(self, pending: PendingAnswer) -> None:
        """Show and save the text that the engine has produced since the last update."""
        answer = pending.answer
        is_done = answer.is_done  # before the text: nothing can come after it
        pending.follow()
        if pending.drop_oldest() and pending.dialogue is self.dialogue:
            await self.transcript.mark_outside(self.dialogue.dropped)
        pending.save()  # before it is painted: what was on the screen is never lost
        view = self.transcript.view_of(pending.turn)
        if isinstance(view, AnswerView):
            view.grow(answer.reply, is_last=is_done)
            view.show_line(self.line_of(pending.turn))
        if is_done and pending.dialogue is self.dialogue:
            await self._finish(pending)
        elif is_done:
            self._finish_elsewhere(pending)

    async def _finish(self, pending: PendingAnswer) -> None:
        self._close(pending)
        answer = pending.answer
        ended_by_itself = answer.error is None and not answer.is_stopped
        if pending.is_unbegun and not ended_by_itself:
            await self._withdraw(pending)
        if answer.error is not None:
            await self._report(answer.error, pending)
        elif ended_by_itself and pending.is_unbegun and pending.continued is not None:
            matches = "it matches the schema, and " if answer.request.options.grammar else ""
            self.app.notify(f"Nothing was added: {matches}the model considers it complete.")
        elif ended_by_itself and answer.note and answer.note != self._reported_note:
            self._reported_note = answer.note
            await self.show_notice(answer.note)
        several = self.several
        if several is not None and pending.turn in several.turns:
            self._note_end(several, pending)
        elif pending.turn in self.dialogue.turns and (calls := pending.calls):
            self.dialogue.add_calls(pending.turn, calls)
            await self._next_call()
            return
        if self.reading is not None:
            await self._go_on_reading(self.reading, answer, ended_by_itself)
        await self._show()
        is_last = several is None and self.pending is None
        if is_last and ended_by_itself and pending.turn in self.dialogue.turns:
            await self._send_next()

    def _finish_elsewhere(self, pending: PendingAnswer) -> None:
        """End an answer in a chat that was left; what comes after it waits there."""
        self._close(pending)
        dialogue, answer, told = pending.dialogue, pending.answer, "is written"
        if pending.is_unbegun and pending.continued is None:
            dialogue.withdraw(pending.turn)
        if answer.error is not None:
            told = f"ended: {answer.error.summary}"
        elif pending.turn in dialogue.turns and pending.calls:
            dialogue.add_calls(pending.turn, pending.calls)
        if dialogue.fault and dialogue not in self._unsaved:
            self._unsaved.append(dialogue)
        if not answer.is_stopped:
            told = f"The answer in {quoted_title(dialogue.title)} {told}."
            self.app.notify(told, markup=False)

    def _leave(self, way_back: str = "") -> None:
        """Let the answers in progress go on in a chat that is left, but for a part of something."""
        pending = self.pending
        if pending is None or self.reading is not None:
            self._break_off(way_back)
        elif not pending.answer.is_stopped:
            told = f"The answer in {quoted_title(pending.dialogue.title)} goes on."
            self.app.notify(f"{told} {way_back}".strip(), markup=False)

    def _keep_pending(self, but: PendingAnswer | None = None) -> None:
        """Stop the answers in progress here without waiting; what they have is kept.

        but: one that goes on.
        """
        self._end_several()
        if self.calling is not None:  # it stays without a result, and can be run again
            self.calling[1].cancel()
            self.calling = None
        for pending in self.own_growing:
            if pending is not but:
                self._keep(pending)

    def _keep(self, pending: PendingAnswer) -> None:
        pending.answer.stop()
        pending.follow()
        self._close(pending)
        if pending.is_unbegun and pending.instead is not None and pending.question is None:
            _drop(pending.dialogue, pending.turn, pending.instead)

    def _break_off(self, way_back: str = "") -> None:
        """Stop the answer in progress as something else is wanted, and say so.

        way_back: tells how it is shown again.
        """
        pending = self.pending
        if pending is None:
            self._keep_pending()
            return
        is_news = not (pending.answer.is_stopped or pending.answer.is_done)
        self._keep_pending()
        question, versions = pending.turn.parent, self.dialogue.versions(pending.turn)
        if is_news and question is not None and pending.turn in versions:
            told = f"Stopped the answer to {quoted_title(title_of(question.text))}."
            self.app.notify(f"{told} {way_back}".strip(), markup=False)

    def _close(self, pending: PendingAnswer) -> None:
        self.growing.remove(pending)
        if (model := pending.answer.model) and not pending.answer.request.model:
            pending.dialogue.set_model(model)
        pending.close()
        self._answers[pending.turn] = pending.answer
        if (metrics := pending.answer.metrics) is not None:
            self.session = self.session.with_answer(metrics)

    async def _withdraw(self, pending: PendingAnswer) -> None:
        """Take an answer without text off the screen; a new question returns to the prompt."""
        question = pending.question
        if pending.continued is not None:
            return
        if question is not None and pending.previous is None:
            self._give_back(question, pending.instead)
        _drop(self.dialogue, question or pending.turn, pending.instead)
        if pending.previous is not None:
            await self._open(pending.previous)

    async def _report(self, error: SpecchatError, pending: PendingAnswer) -> None:
        remedy = remedy_here(error)
        if not pending.is_unbegun:
            remedy = " · ".join(filter(None, [CONTINUES, remedy]))
        await self.show_fault(error.summary, remedy)
        self._faulted = pending.turn

    def _save_unsaved(self) -> None:
        for dialogue in self._unsaved:
            dialogue.refresh()
        self._unsaved = [dialogue for dialogue in self._unsaved if dialogue.fault]

    async def _follow_other_windows(self) -> None:
        self._save_unsaved()
        if not self._changing.locked() and self.dialogue.refresh():
            async with self._changing:
                await self._show()


def _drop(dialogue: Dialogue, turn: Turn, instead: Turn | None) -> None:
    """Withdraw a turn, and show the version again that was shown before it."""
    was_shown = turn in dialogue.turns
    dialogue.withdraw(turn)
    if was_shown and instead is not None:
        dialogue.show(instead)
