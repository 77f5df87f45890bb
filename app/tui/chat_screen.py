"""The main screen: a chat, the live panel, downloads and the prompt."""

from typing import ClassVar

from textual import constants, events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer

from app.actions import ACTIONS, BY_NAME, BY_SLASH, Action, parse, unknown_command
from app.chat.composer_draft import ComposerDraft
from app.engine.engine import Engine
from app.engine.engine_status import Loaded, Phase, Status
from app.settings.answering import Answering
from app.settings.preferences import Preferences
from app.tui.appearance import Appearance
from app.tui.commands.app_commands import AppCommands
from app.tui.commands.chat_commands import ChatCommands
from app.tui.commands.command import commands_of
from app.tui.commands.model_commands import ModelCommands
from app.tui.commands.settings_commands import SettingsCommands
from app.tui.conversation.chat_view import ChatView
from app.tui.conversation.dialogue import Dialogue
from app.tui.prompt.prompt import Prompt
from app.tui.prompt.prompt_area import PromptArea
from app.tui.status.download_list import DownloadList
from app.tui.status.figure_text import FigureText
from app.tui.status.live_figures import LiveFigures
from app.tui.status.panel import Panel
from app.tui.status.status_line import StatusLine
from app.tui.terminal.clipboard import copy
from app.tui.typed_app import typed_app
from backends.base import SpecchatError

_UPDATE_SECONDS = 1 / 12
"""Between two looks at the engine's status and figures."""

_SAVE_DRAFT_SECONDS = 0.5

_NARROW = 80
"""Columns below which the panel is below the conversation."""

_PANEL_WIDTH = 110
"""Columns from which the panel is shown unless the user decides otherwise."""


class ChatScreen(Screen[None]):
    """Composes the widgets of a chat and coordinates them."""

    app = typed_app
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
    ChatScreen > Horizontal { height: 1fr; }
    ChatScreen.-narrow > Horizontal { layout: vertical; }
    ChatScreen.-narrow Panel {
        width: 1fr; height: 50%; border-left: none; border-top: solid $surface-lighten-2;
    }
    ChatScreen #state { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
    """

    def __init__(
        self, engine: Engine, dialogue: Dialogue, defaults: Answering, preferences: Preferences
    ) -> None:
        super().__init__()
        self.view = ChatView(engine, dialogue, defaults)
        self.panel = Panel()
        self.prompt = Prompt(engine.count)
        self._engine = engine
        self._appearance = Appearance(self.app, preferences, self._apply_preferences)
        self._status_line = StatusLine()
        self._downloads = DownloadList()
        self._state_line = FigureText(id="state")
        self._figures = LiveFigures(self.panel, self._state_line)
        self._composer_draft = ComposerDraft(engine.paths)
        app, view, area, perform = self.app, self.view, self.prompt.area, self.action_perform
        models = ModelCommands(app, engine, view, self._downloads, perform)
        self.commands = commands_of(
            ChatCommands(app, engine, view, area),
            AppCommands(app, self._appearance, self.panel, area),
            models,
            SettingsCommands(app, engine, view, self._appearance, models, perform),
        )
        self._reported_error: SpecchatError | None = None

    def compose(self) -> ComposeResult:
        yield self._status_line
        with Horizontal():
            yield self.view
            yield self.panel
        yield self._downloads
        yield self._state_line
        yield self.prompt
        yield Footer()

    def on_mount(self) -> None:
        self._apply_preferences()
        area = self.prompt.area
        area.write(self._composer_draft.left)
        area.focus()
        for question in self.view.dialogue.questions():
            area.remember(question)
        self.set_interval(_UPDATE_SECONDS, self._update)
        self.set_interval(_SAVE_DRAFT_SECONDS, self._save_draft)

    def on_unmount(self) -> None:
        """Save what an answer in progress has, and what was not sent."""
        self._composer_draft.keep(_joined([*self.view.abandon(), self.prompt.area.text]))
        self._composer_draft.close()

    def _save_draft(self) -> None:
        """Save what is typed or queued, in case the app is killed."""
        self._composer_draft.keep_soon(_joined([*self.view.queued, self.prompt.area.text]))

    def on_resize(self) -> None:
        self.set_class(self.app.size.width < _NARROW, "-narrow")
        self._show_panel()

    def _apply_preferences(self) -> None:
        preferences = self._appearance.preferences
        level = constants.TEXTUAL_ANIMATIONS if preferences.animations else "none"
        self.app.animation_level = level
        self.prompt.area.enter_sends = preferences.enter_sends
        self.prompt.area.cursor_blink = level != "none"
        self._show_panel()

    def _show_panel(self) -> None:
        """Show or hide the panel, as preferred or as the width allows."""
        how = self._appearance.preferences.panel
        is_wide = self.app.size.width >= _PANEL_WIDTH
        self.panel.display = how == "shown" or (how == "auto" and is_wide)
        self._figures.refresh()

    # Actions

    async def action_perform(self, name: str, argument: str = "") -> bool:
        """Run a registered action; an error is notified, and the result is then False."""
        try:
            command = self.commands[name]
            pending = command(argument) if BY_NAME[name].argument else command()
            if pending is not None:
                await pending
        except SpecchatError as error:
            self.notify(str(error), severity="error", timeout=10)
            return False
        return True

    async def begin(self, action: Action, *, run: bool = True) -> None:
        """Run an action that was picked from a list, or let the user type its argument."""
        if run and not action.needs_argument:
            await self.action_perform(action.name)
            return
        area = self.prompt.area
        area.remember(area.text)
        area.write(f"/{action.slash} ")
        area.focus()

    def action_copy_text(self) -> None:
        """Copy the text selected with the mouse."""
        selected = self.get_selected_text()
        if selected is None:
            raise SkipAction
        self.notify(copy(self.app, selected, "the selection"))

    # The prompt

    @on(PromptArea.Submitted)
    async def _submit(self, event: PromptArea.Submitted) -> None:
        event.stop()
        text, area = event.text.strip(), self.prompt.area
        if (command := parse(text)) is not None:
            area.remember(text)
            action, argument = command
            if not await self.action_perform(action.name, argument) and not area.text:
                area.write(event.text)
                area.select_all()  # what is typed next replaces it
        elif (unknown := unknown_command(text)) is not None:
            self.notify(f"There is no command {unknown}; F1 lists them.")
            area.put_before(event.text, separator="\n")
        else:
            area.remember(text)
            await self._send(text)

    async def _send(self, text: str) -> None:
        try:
            await self.view.send(text)
        except SpecchatError as error:
            self.prompt.area.put_before(text)
            self.notify(str(error), severity="error", timeout=10)

    @on(PromptArea.CommandPicked)
    async def _run_picked(self, event: PromptArea.CommandPicked) -> None:
        event.stop()
        action, area = BY_SLASH[event.slash], self.prompt.area
        if event.run and not action.needs_argument:
            await self.action_perform(action.name)
            return
        typed_since = area.take()
        await self.begin(action, run=False)
        area.insert(typed_since)

    def on_key(self, event: events.Key) -> None:
        """Type into the prompt while the conversation has the focus."""
        if event.is_printable and event.character:  # the prompt consumes its own keys
            event.stop()
            self.set_focus(self.prompt.area)
            self.prompt.area.insert(event.character)

    # The chat

    @on(ChatView.Opened)
    def _chat_opened(self, event: ChatView.Opened) -> None:
        event.stop()
        self._figures.refresh()
        self._greet()

    @on(ChatView.AnswerStarted)
    def _answer_started(self, event: ChatView.AnswerStarted) -> None:
        event.stop()
        self._figures.restart_rate()

    @on(ChatView.QuestionReturned)
    def _question_returned(self, event: ChatView.QuestionReturned) -> None:
        event.stop()
        self.prompt.area.put_before(event.text)

    def _greet(self) -> None:
        loaded = self._engine.status.loaded
        if loaded is not None:
            enter_sends = self._appearance.preferences.enter_sends
            self.view.greet(_greeting(loaded, "Enter" if enter_sends else "Ctrl+J"))

    # The engine

    def _update(self) -> None:
        """Show the engine's status and the figures of the answer."""
        status = self._engine.status
        if self._status_line.show(status) and status.phase is Phase.READY:
            self._greet()
        self._report_error(status)
        self.prompt.context_size = status.loaded.context_size if status.loaded else None
        is_pending = self.view.pending is not None
        self._figures.update(self.view.answer, status.loaded, is_pending=is_pending)

    def _report_error(self, status: Status) -> None:
        """Notify once of an engine error."""
        error = status.error
        if error is not None and error is not self._reported_error:
            self._reported_error = error
            self.notify(str(error), severity="error", timeout=10)


def _greeting(loaded: Loaded, send_key: str) -> str:
    """How to begin, with notes on the loaded model."""
    lines = [f"Ask something and press {send_key}. / lists commands, F1 every key."]
    if loaded.name == "demo":
        lines.append(
            "This is the bundled model: small and quick, often wrong. "
            "Ctrl+L lists better ones, and shows which fit this machine."
        )
    return "\n".join([*lines, *loaded.notes])


def _joined(texts: list[str]) -> str:
    return "\n\n".join(filter(str.strip, texts))
