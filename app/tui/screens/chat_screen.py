"""The conversation: questions go to the engine, answers come back on a timer."""

from typing import ClassVar

from textual import events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer, Static

from app.answer import Answer
from app.composer_draft import ComposerDraft
from app.downloads import Downloads
from app.engine import Engine
from app.settings.answering import Answering
from app.settings.preferences import Preferences
from app.tui import appearance
from app.tui.actions import ACTIONS, BY_SLASH, Action, parse, unknown_command
from app.tui.commands import chat_commands
from app.tui.conversation.chat_view import Exchange, Work
from app.tui.conversation.dialogue import Dialogue
from app.tui.conversation.message import Message
from app.tui.conversation.transcript import Transcript
from app.tui.news import News
from app.tui.prompt.prompt import Completion, Prompt, PromptArea
from app.tui.status.figure_text import FigureText
from app.tui.status.live_figures import Figures
from app.tui.status.panel import Panel
from app.tui.terminal.clipboard import copy
from backends.base import SpecchatError
from decoding.sampling import SamplingSettings

_TICK = 1 / 12

_KEEP_SECONDS = 0.5
"""Between two looks at what is typed and not sent."""

_NARROW = 80
"""Columns below which the panel is under the conversation."""


class ChatScreen(Screen[None]):
    """Transcript, live panel, status and prompt."""

    AUTO_FOCUS: ClassVar[str | None] = "PromptArea"
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
    ChatScreen #what.-fault { height: auto; max-height: 5; }
    ChatScreen > Horizontal { height: 1fr; }
    ChatScreen.-narrow > Horizontal { layout: vertical; }
    ChatScreen.-narrow Panel {
        width: 1fr; height: 50%; border-left: none; border-top: solid $surface-lighten-2;
    }
    ChatScreen #downloads { height: auto; max-height: 4; padding: 0 1; display: none; }
    ChatScreen #state { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
    ChatScreen .fault { color: $text-error; padding: 0 2 1 2; height: auto; }
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
        self.exchange = Exchange(self)
        self.figures = Figures(self)
        self.downloads = Downloads()
        self.news = News(self)
        self._draft = ComposerDraft(engine.paths)
        self._typed = self._draft.left
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
        area = self.query_one(PromptArea)
        area.write(self._draft.left)
        area.focus()
        for question in self.dialogue.questions():
            area.remember(question)
        self.set_interval(_TICK, self._tick)
        self.set_interval(_KEEP_SECONDS, self._keep_unsent)

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
    def work(self) -> Work | None:
        """The answer at work."""
        return self.exchange.work

    @property
    def last_answer(self) -> Answer | None:
        """The last answer of this chat that is over."""
        return self.exchange.last_answer

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
        unasked = self.exchange.abandon()
        self.dialogue = dialogue
        area = self.query_one(PromptArea)
        area.write("\n\n".join(filter(None, [*unasked, area.text])))
        self.figures.refresh()
        await self.transcript.show(
            [Message(turn.role, turn.text, turn.ending) for turn in dialogue.turns]
        )
        self.news.greet()

    def on_unmount(self) -> None:
        """The app ends: an answer or download at work is kept as far as it came."""
        self.downloads.stop_all()
        self._draft.keep(_joined([*self.exchange.abandon(), self._typed]))
        self._draft.close()

    def _keep_unsent(self) -> None:
        """Should the app be killed, what was typed until now is there at the next start."""
        self._draft.keep_soon(_joined([*self.exchange.waiting, self._typed]))

    # What the user sends

    @on(PromptArea.Sent)
    async def _sent(self, event: PromptArea.Sent) -> None:
        event.stop()
        text = event.text.strip()
        area = self.query_one(PromptArea)
        command = parse(text)
        if command is None and (unknown := unknown_command(text)) is not None:
            self.notify(f"There is no command {unknown}; F1 lists them.")
            area.write("\n".join(filter(None, (event.text, area.text))))
            return
        area.remember(text)
        if command is None:
            await self.send(text)
            return
        action, argument = command
        if not await self.action_perform(action.name, argument) and not area.text:
            area.write(event.text)
            area.select_all()  # what is typed next takes its place

    @on(PromptArea.Changed)
    def _type(self, event: PromptArea.Changed) -> None:
        self._typed = event.text_area.text

    def on_key(self, event: events.Key) -> None:
        """What is typed while the conversation has the focus is meant for the prompt."""
        area = self.query_one(PromptArea)
        if event.is_printable and event.character:  # the prompt itself keeps what it gets
            event.stop()
            self.set_focus(area)
            area.insert(event.character)

    @on(Completion.Chosen)
    async def _completed(self, event: Completion.Chosen) -> None:
        event.stop()
        action = BY_SLASH[event.slash]
        if event.at_once and not action.needs_argument:
            await self.begin(action)
            return
        area = self.query_one(PromptArea)
        typed_since = area.take()
        await self.begin(action, at_once=False)
        area.insert(typed_since)

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
        await self.exchange.send(text)

    async def ask(self, partial: str = "", begun: str = "") -> None:
        """Have the last question answered, or a partial answer continued, below which begun is."""
        await self.exchange.ask(partial, begun=begun)

    # What the engine tells

    async def _tick(self) -> None:
        """Show what came since the last time; a tick that is still at work is not overtaken."""
        if self._busy:
            return
        self._busy = True
        try:
            self.news.show()
            loaded = self.engine.status.loaded
            if self.work is not None and loaded is not None:
                self.dialogue.set_model(loaded.name)
            await self.exchange.drain()
            self.figures.show(self.exchange.answer, loaded, is_at_work=self.work is not None)
        finally:
            self._busy = False


def _joined(texts: list[str]) -> str:
    return "\n\n".join(filter(str.strip, texts))
