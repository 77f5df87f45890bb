"""The app: an engine, a history and a stack of screens."""

import gc
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar

from textual.app import App
from textual.filter import LineFilter
from textual.notifications import SeverityLevel

from app.actions import ACTIONS
from app.ahead.expected import Permission
from app.dialogue.dialogue import Dialogue
from app.engine.engine import Companion, Engine
from app.history import History, HistoryError
from app.history.store import open_history
from app.paths import Paths
from app.settings.in_effect import AppStart, Preferences
from app.tui import terminal
from app.tui.chat_screen import ChatScreen
from app.tui.keymap import keys_of, usable_preferences
from app.tui.look import BREAKPOINTS, HEIGHTS, register_themes
from app.tui.store import Store

_START_DELAY = 0.05
"""Seconds for the first paint, before loading the model takes the processor."""

_QUIT_SECONDS = 0.8
"""How long quitting waits for the engine."""

_TERMINAL_CHECK_SECONDS = 1.0

_STARTED_SECONDS = 2.0
"""When all that stays has been made, and memory is worth collecting."""

SWITCH_SECONDS = 0.0005
"""Thread switch interval; Python's default of 5 ms is as long as a token."""


class SpecchatApp(App[None]):
    """The terminal app.

    start: options and settings, of which those that cannot work are left out and told. permission:
    what the engine asks whether it may read ahead; it follows the settings.
    """

    TITLE = "specchat"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = BREAKPOINTS
    VERTICAL_BREAKPOINTS = HEIGHTS
    CSS = """
    ToastRack { dock: top; align: right top; margin: 1 0 0 0; }
    ChatScreen.-wide.-with-panel ToastRack { margin: 1 41 0 0; }
    Toast { max-width: 80%; margin: 0; padding: 0 1; background: $panel; }
    """
    PAUSE_GC_ON_SCROLL: ClassVar[bool] = True

    def __init__(
        self,
        engine: Engine,
        history: History | None,
        start: AppStart,
        permission: Permission | None = None,
    ) -> None:
        super().__init__(driver_class=terminal.driver_class())
        register_themes(self)  # now: style sheets name their colours
        terminal.show_stand_ins()
        terminal.keep_pastes_inert()
        self._printable = terminal.PrintableLines()
        self.engine = engine
        self.exit_signals = terminal.ExitSignals()
        preferences, faults = usable_preferences(start.preferences)
        self.store = Store(preferences, start.served_at)
        self._start = start
        self._permission = permission
        self._notices = (*start.notices, *map(str, faults))
        self._dialogue = Dialogue(history, start.system, engine.options.model or "")

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._printable]

    def on_mount(self) -> None:
        """Show the chat at once; the model loads in the background."""
        preferences = self.store.preferences
        self.theme = preferences.theme
        keys = preferences.keys
        self.set_keymap(
            {action.name: keys_of(action, keys) for action in ACTIONS if action.name in keys}
        )
        self.watch(self.store, "preferences", self._follow_preferences)
        self._open_last()
        if self._start.folder:
            self._dialogue.set_folder(self._start.folder)
        screen = ChatScreen(
            self.engine, self._dialogue, self._start.answering, self.store, self._notices
        )
        self.push_screen(screen)
        if self._start.preset:
            self.call_after_refresh(screen.action_perform, "preset", self._start.preset)
        if self._start.served_at is not None:
            where = self._start.served_at.words
            self.notify(f"Other programs reach this model at {where} (F1 shows it again)")
        self.call_after_refresh(self.set_timer, _START_DELAY, self.engine.start)
        self.exit_signals.on_signal(self.exit)
        if not self.is_headless:
            self.set_timer(_STARTED_SECONDS, _collect_garbage)
            self.set_interval(_TERMINAL_CHECK_SECONDS, self._exit_without_terminal)

    def _follow_preferences(self, preferences: Preferences) -> None:
        if self._permission is not None:
            self._permission.setting = preferences.ahead
            self._permission.waste = preferences.ahead_waste

    def _open_last(self) -> None:
        history = self._dialogue.history
        if not self._start.continues or history is None:
            return
        try:
            if last := history.chats(limit=1):
                self._dialogue.open(last[0].number)
        except HistoryError as error:
            self._notices = (*self._notices, str(error))

    def _exit_without_terminal(self) -> None:
        if terminal.is_gone():
            self.exit()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Confirm what cannot be seen, such as a copy, unless the same is still shown.

        It is never parsed as markup, whatever the caller asks: it may quote untrusted text.
        """
        del markup
        if all(shown.message != message for shown in self._notifications):
            self.clear_notifications()  # several would cover the conversation
            super().notify(message, title=title, severity=severity, timeout=timeout, markup=False)

    def _fatal_error(self) -> None:
        """Exit without Textual's traceback; `run` raises the exception, which is then reported."""
        self._close_messages_no_wait()

    @property
    def crash(self) -> Exception | None:
        return self._exception

    async def action_quit(self) -> None:
        """Quit as the command does: Textual's own key, Ctrl+Q, comes before those of screens."""
        chat = next((one for one in self.screen_stack if isinstance(one, ChatScreen)), None)
        if chat is None:
            self.exit()
        elif not await chat.action_perform("quit") and self.screen is not chat:
            self.notify(chat.prompt.area.fault)

    def action_help_quit(self) -> None:
        if isinstance(self.screen, ChatScreen):
            self.screen.prompt.area.interrupt()
        else:
            self.screen.dismiss()

    def action_press(self, key: str) -> None:
        """Press a key that was clicked on; later, as a key goes no further than who sent it."""
        self.call_later(self.simulate_key, key)


def _collect_garbage() -> None:
    """Collect garbage from now on, but never look at what has been made so far.

    A collection that looks at it takes 60 to 100 ms from the screen and the model, again and
    again while an answer is painted.
    """
    gc.freeze()
    gc.enable()


def run(start: AppStart, paths: Paths, companion: Companion | None = None) -> int:
    """Run the app until the user quits; returns the exit code. The engine may still be busy.

    companion: what runs beside it on its engine, such as a server.

    Raises:
        UsageError: the companion cannot run.
        Exception: the app crashed.
    """
    try:
        history = open_history(paths)
    except HistoryError:  # told, and tried again at each use
        history = History(paths.history.absolute(), repairs=True)
    permission = Permission()
    engine = Engine(start.session, paths, None, permission, permission.most_waste)
    sys.setswitchinterval(SWITCH_SECONDS)
    with ExitStack() as held:
        held.callback(history.close)
        if companion is not None:
            start = replace(start, served_at=held.enter_context(companion(engine)))
        app = SpecchatApp(engine, history, start, permission)
        held.enter_context(app.exit_signals.handled())
        try:
            app.run()
        finally:
            engine.close(_QUIT_SECONDS)
        if app.exit_signals.code is not None:
            return app.exit_signals.code
        if app.crash is not None:
            raise app.crash
        return app.return_code or 0
