"""The conversation: questions go to the engine, answers come back on a timer."""

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Markdown, Static

from app.answer import Answer, Request
from app.attachments import with_files
from app.downloads import Downloads
from app.engine import Engine
from app.engine_status import Phase
from app.settings.answering import Answering
from app.settings.preferences import Preferences
from app.tui import appearance, chat_commands, provenance, wording
from app.tui.actions import ACTIONS, BY_SLASH, Action, parse, unknown_command
from app.tui.clipboard import copy
from app.tui.dialogue import Dialogue, Turn
from app.tui.figure_text import FigureText
from app.tui.figures import Figures
from app.tui.file_costs import FileCosts
from app.tui.message import GrowingMessage, Message
from app.tui.panel import Panel
from app.tui.prompt import Completion, Prompt, PromptArea
from app.tui.transcript import Transcript
from backends.base import SpecchatError
from decoding.events import FinishReason
from decoding.sampling import SamplingSettings

_TICK = 1 / 12
_SAVE_SECONDS = 1.0

_NARROW = 80
"""Columns below which the panel is under the conversation."""


@dataclass(slots=True)
class Work:
    """The answer at work and where it is shown and kept."""

    answer: Answer
    turn: Turn
    message: GrowingMessage
    saved_at: float = 0.0
    dropped: int = 0
    """Messages that had to leave the context for it, as far as the screen tells."""


class ChatScreen(Screen[None]):
    """Transcript, live panel, status and prompt."""

    BINDINGS: ClassVar = [
        Binding(
            action.keys,
            f"perform('{action.name}')",
            action.label,
            show=action.shown,
            id=action.name,
        )
        for action in ACTIONS
        if action.keys
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ChatScreen #what { height: 1; background: $panel; padding: 0 1; }
    ChatScreen > Horizontal { height: 1fr; }
    ChatScreen.-narrow > Horizontal { layout: vertical; }
    ChatScreen.-narrow Panel {
        width: 1fr; height: 50%; border-left: none; border-top: solid $surface-lighten-2;
    }
    ChatScreen #downloads { height: auto; max-height: 4; padding: 0 1; display: none; }
    ChatScreen #state { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
    ChatScreen #hint { color: $text-muted; padding: 1 2; height: auto; }
    """

    def __init__(
        self,
        engine: Engine,
        dialogue: Dialogue,
        settings: SamplingSettings,
        max_tokens: int,
        preferences: Preferences,
    ) -> None:
        super().__init__()
        self.engine = engine
        self.dialogue = dialogue
        self.defaults = Answering(settings, max_tokens)
        self.preferences = preferences
        self.work: Work | None = None
        self.last_answer: Answer | None = None
        self._waiting: deque[str] = deque()
        self.figures = Figures(self)
        self.downloads = Downloads()
        self._file_costs = FileCosts(engine.count)
        self._costs_shown = ""
        self._status_shown = ""
        self._told_fault = ""
        self._told_note = ""
        self._busy = False

    def compose(self) -> ComposeResult:
        yield Static(id="what")
        with Horizontal():
            yield Transcript()
            yield Panel()
        yield FigureText(id="downloads")
        yield FigureText(id="state")
        yield Prompt()
        yield Footer()

    def on_mount(self) -> None:
        appearance.set_up(self, self.preferences)
        self.query_one(PromptArea).focus()
        self.set_interval(_TICK, self._tick)

    def on_resize(self) -> None:
        """There may be room for the panel, or none any more."""
        self.set_class(self.app.size.width < _NARROW, "-narrow")
        appearance.show_panel(self)

    def action_copy_text(self) -> None:
        """Copy what is selected with the mouse, and say so."""
        selected = self.get_selected_text()
        if selected is None:
            raise SkipAction
        self.notify(copy(self.app, selected, "the selection"))

    @property
    def settings(self) -> SamplingSettings:
        """How the next answer of this chat is sampled."""
        return self.defaults.changed(self.dialogue.own).sampling

    @property
    def max_tokens(self) -> int:
        """The longest answer of this chat, in tokens."""
        return self.defaults.changed(self.dialogue.own).max_tokens

    @property
    def transcript(self) -> Transcript:
        """Where messages are shown."""
        return self.query_one(Transcript)

    async def action_perform(self, name: str, argument: str = "") -> bool:
        """Do one of the registered actions; False if it went wrong, which is told, never thrown."""
        try:
            await chat_commands.COMMANDS[name](self, argument)
        except SpecchatError as error:
            self.notify(str(error), severity="error", timeout=10)
            return False
        return True

    async def start(self, dialogue: Dialogue) -> None:
        """Show another chat."""
        self._abandon()
        self.dialogue = dialogue
        self.last_answer = None
        self._waiting.clear()
        self.figures.refresh()
        await self.transcript.show(
            [Message(turn.role, turn.text, turn.ending) for turn in dialogue.turns]
        )
        self.greet()

    def on_unmount(self) -> None:
        """The app ends: an answer or download at work is kept as far as it came."""
        self.downloads.stop_all()
        self._abandon()

    def _abandon(self) -> None:
        """Stop the answer at work, for good; what was said is saved."""
        work, self.work = self.work, None
        if work is None:
            return
        work.answer.stop()
        work.turn.text += work.answer.take()
        work.turn.ending = wording.ending(work.answer.live, FinishReason.CANCELLED)
        self.dialogue.save(work.turn)

    # What the user sends

    @on(PromptArea.Sent)
    async def _sent(self, event: PromptArea.Sent) -> None:
        event.stop()
        text = event.text.strip()
        if not text:
            return
        area = self.query_one(PromptArea)
        command = parse(text)
        if command is not None:
            area.clear()
            area.remember(text)
            action, argument = command
            if not await self.action_perform(action.name, argument) and not area.text:
                area.write(event.text)
            return
        if (unknown := unknown_command(text)) is not None:
            self.notify(f"There is no command {unknown}; F1 lists them.")
            return
        area.clear()
        area.remember(text)
        await self.send(text)

    @on(Completion.Chosen)
    async def _completed(self, event: Completion.Chosen) -> None:
        event.stop()
        self.query_one(PromptArea).clear()
        await self.begin(BY_SLASH[event.slash], at_once=event.at_once)

    async def begin(self, action: Action, *, at_once: bool = True) -> None:
        """Do an action that was picked, or have its argument typed."""
        if at_once and not action.needs_argument:
            await self.action_perform(action.name)
            return
        area = self.query_one(PromptArea)
        area.remember(area.text)
        area.write(f"/{action.slash} ")
        area.focus()

    async def send(self, text: str) -> None:
        """Say something; while an answer is at work it waits its turn."""
        if self.work is not None:
            self._waiting.append(text)
            self.notify("Sent when the answer is done; Esc stops it.")
            return
        try:
            prepared = with_files(text)
        except SpecchatError as error:
            self.query_one(PromptArea).text = text
            self.notify(str(error), severity="error", timeout=10)
            return
        self.dialogue.add("user", prepared)
        await self._hide_hint()
        await self.transcript.add(Message("user", prepared))
        await self.ask()

    async def ask(self, partial: str = "") -> None:
        """Have the last question answered, or a partial answer continued."""
        end = len(self.dialogue.turns)
        request = Request(self.dialogue.conversation(end), self.settings, self.max_tokens, partial)
        turn = self.dialogue.add("assistant", partial)
        message = GrowingMessage(partial)
        await self.transcript.add(message)
        self.work = Work(self.engine.ask(request), turn, message, time.monotonic())
        self.figures.begin()

    # What the engine tells

    async def _tick(self) -> None:
        """Show what came since the last time; a tick that is still at work is not overtaken."""
        if self._busy:
            return
        self._busy = True
        try:
            self._show_status()
            self._show_file_costs()
            self._show_downloads()
            loaded = self.engine.status.loaded
            if self.work is not None:
                if loaded is not None:
                    self.dialogue.set_model(loaded.name)
                await self._drain(self.work)
            answer = self.work.answer if self.work is not None else self.last_answer
            self.figures.show(answer, loaded, is_at_work=self.work is not None)
        finally:
            self._busy = False

    async def _drain(self, work: Work) -> None:
        answer = work.answer
        is_done = answer.is_done  # before the text: nothing can come after it
        text = answer.take()
        work.turn.text += text
        if answer.dropped > work.dropped:
            work.dropped = answer.dropped
            await self._forget(answer.dropped)
        now = time.monotonic()
        if is_done:
            await self._finish(work, text)
            return
        await work.message.grow(text)
        if now - work.saved_at >= _SAVE_SECONDS:
            work.saved_at = now
            self.dialogue.save(work.turn)

    async def _forget(self, dropped: int) -> None:
        """Mark what the model no longer sees."""
        self.dialogue.forget(dropped)
        seen = len(self.dialogue.turns) - self.dialogue.forgotten
        await self.transcript.mark_window(seen)

    async def _finish(self, work: Work, text: str) -> None:
        answer = work.answer
        await work.message.grow(text, is_last=True)
        await work.message.settle()
        error = str(answer.error) if answer.error is not None else ""
        ending = wording.ending(answer.live, answer.finish_reason, error)
        work.turn.ending = ending
        work.message.show_ending(ending)
        if work.turn.text or not error:
            self.dialogue.save(work.turn)
        else:
            await self._give_back(work, error)
        self._tell_fault()
        self._tell_note(answer.note)
        if self.work is not work:  # another chat was opened meanwhile
            return
        self.work = None  # last of all: what is sent before waits its turn
        self.last_answer = answer
        if self._waiting and answer.error is None and not answer.is_stopped:
            await self.send(self._waiting.popleft())
        elif self._waiting:
            area = self.query_one(PromptArea)
            area.text = "\n\n".join([*self._waiting, *filter(None, [area.text])])
            self._waiting.clear()

    async def _give_back(self, work: Work, error: str) -> None:
        """A question without answer goes back to the prompt, so that nothing typed is lost."""
        place = self.dialogue.turns.index(work.turn)
        question = self.dialogue.turns[place - 1] if place else None
        if question is None or question.role != "user":
            self.dialogue.save(work.turn)
            return
        area = self.query_one(PromptArea)
        if not area.text:
            area.text = question.text
        self.dialogue.cut(place - 1)
        shown = self.transcript.messages
        work.message.add_class("-returned")
        work.turn.ending = error
        if len(shown) > 1:
            shown[-2].add_class("-returned")

    def _tell_note(self, note: str) -> None:
        """What the model's template could not do, once."""
        if note and note != self._told_note:
            self._told_note = note
            self.notify(note, severity="warning", timeout=10)

    def _tell_fault(self) -> None:
        fault = self.dialogue.fault
        if fault and fault != self._told_fault:
            self.notify(f"This chat is not saved: {fault}", severity="error", timeout=10)
        self._told_fault = fault

    def _show_status(self) -> None:
        status = self.engine.status
        if status.error is not None:
            text = str(status.error).replace("\n", " ")
        elif status.phase is Phase.LOADING:
            text = f"{status.text}…"
        else:
            text = status.text or (wording.what_runs(status.loaded) if status.loaded else "")
        if text != self._status_shown:
            self._status_shown = text
            self.query_one("#what", Static).update(Content(text), layout=False)
            if status.error is not None:
                self.notify(str(status.error), severity="error", timeout=10)
                if status.phase is not Phase.FAILED:
                    self.engine.status = replace(status, error=None)
            if status.phase is Phase.READY:
                self.greet()

    def _show_downloads(self) -> None:
        for ended in self.downloads.take_ended():
            if ended.error is None:
                ended.then()
            elif ended.error:
                self.notify(ended.error, severity="error", timeout=10)
            else:
                self.notify(f"The download of {ended.name} was stopped; what came is kept.")
        text = "\n".join(f"{name}: {line}" for name, line in self.downloads.lines.items())
        shown = self.query_one("#downloads", FigureText)
        shown.display = bool(text)
        if text:
            shown.write(text)

    def _show_file_costs(self) -> None:
        area = self.query_one(PromptArea)
        costs = self._file_costs.line(area.text)
        if costs != self._costs_shown:
            self._costs_shown = costs
            area.border_subtitle = Content(costs)

    def greet(self) -> None:
        """Say once what one can do, and that the bundled model is small."""
        loaded = self.engine.status.loaded
        if loaded is None or self.dialogue.turns or self.query("#hint"):
            return
        sends = "Enter" if self.preferences.enter_sends else "Ctrl+J"
        lines = [f"Ask something and press {sends}. / lists commands, F1 every key."]
        if loaded.name == "demo":
            lines.append(
                "This is the bundled model: small and quick, often wrong. For a better one, "
                "start with --model FILE.gguf, or put files into the models folder "
                "(specchat path models) and name one of them."
            )
        lines += loaded.notes
        self.transcript.mount(Static(Content("\n".join(lines)), id="hint"))

    async def _hide_hint(self) -> None:
        await self.query("#hint").remove()

    async def show_origins(self) -> None:
        """Recolour the last answer, or show it as before."""
        answer, shown = self.last_answer, self.transcript.messages
        if self.work is not None or answer is None or not shown or not answer.pieces:
            self.notify("There is no finished answer to colour.")
            return
        message = shown[-1]
        found = message.query("#origins")
        text = message.query_one(Markdown)
        if found:
            await found.remove()
            text.display = True
            return
        text.display = False
        content = provenance.painted(answer.pieces)
        await message.mount(Static(content, id="origins"), after=text)
