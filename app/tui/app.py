"""The app: an engine, a history and a stack of screens."""

import sys
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import Screen

from app.actions import ACTIONS
from app.engine.engine import Engine
from app.history import History, HistoryError
from app.history.derived_data import open_history
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.app_start import AppStart
from app.settings.in_effect import settings_in_effect
from app.settings.preferences import Preferences, preferences_of
from app.tui.appearance import set_theme
from app.tui.chat_screen import ChatScreen
from app.tui.conversation.dialogue import Dialogue
from app.tui.keymap import keys_of
from app.tui.terminal.exit_signals import ExitSignals
from app.tui.terminal.inert_paste import keep_pastes_inert
from app.tui.terminal.printable_lines import PrintableLines, show_stand_ins
from app.tui.terminal.terminal_driver import driver_class, is_gone
from app.tui.usable_preferences import usable_preferences
from backends.base import UsageError
from decoding.sampling.distribution import SamplingSettings

_START_DELAY = 0.05
"""Seconds for the first paint, before loading the model takes the processor."""

_QUIT_SECONDS = 0.8
"""How long quitting waits for the engine."""

_TERMINAL_CHECK_SECONDS = 1.0

_INFORMATION_SECONDS = 3.0
_WARNING_SECONDS = 10.0

SWITCH_SECONDS = 0.0005
"""Thread switch interval; Python's default of 5 ms is as long as a token."""


class SpecchatApp(App[None]):
    """The terminal app."""

    TITLE = "specchat"
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    ToastRack { dock: top; align: right top; margin: 1 0 0 0; }
    Toast { max-width: 80%; margin: 0; padding: 0 1; }
    """
    PAUSE_GC_ON_SCROLL: ClassVar[bool] = True

    def __init__(
        self,
        engine: Engine,
        history: History | None,
        system: str,
        settings: SamplingSettings,
        max_tokens: int,
        preferences: Preferences | None = None,
    ) -> None:
        super().__init__(driver_class=driver_class())
        show_stand_ins()
        keep_pastes_inert()
        self._printable = PrintableLines()
        self.engine = engine
        self.exit_signals = ExitSignals()
        self._dialogue = Dialogue(history, system, engine.options.model or "")
        self._defaults = Answering(settings, max_tokens)
        paths = Paths.of_this_user()
        self._preferences = preferences or preferences_of(settings_in_effect(paths), paths.settings)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Filters of every line that any widget paints."""
        return [*super().get_line_filters(), self._printable]

    def on_mount(self) -> None:
        """Show the chat at once; the model loads in the background."""
        self.set_keymap(
            {
                action.name: keys_of(action, self._preferences.keys)
                for action in ACTIONS
                if action.name in self._preferences.keys
            }
        )
        self.push_screen(ChatScreen(self.engine, self._dialogue, self._defaults, self._preferences))
        self._use_theme(self._preferences.theme)
        self.call_after_refresh(self.set_timer, _START_DELAY, self.engine.start)
        self.exit_signals.on_signal(self.exit)
        if not self.is_headless:
            self.set_interval(_TERMINAL_CHECK_SECONDS, self._exit_without_terminal)

    def _exit_without_terminal(self) -> None:
        if is_gone():
            self.exit()

    def _use_theme(self, theme: str) -> None:
        try:
            if theme:
                set_theme(self, theme)
        except UsageError as error:
            self.notify(str(error), severity="warning", timeout=10)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a notification, unless the same one is still shown.

        It is never parsed as markup, whatever the caller asks: it may quote untrusted text.
        """
        del markup
        if all(shown.message != message for shown in self._notifications):
            default = _INFORMATION_SECONDS if severity == "information" else _WARNING_SECONDS
            seconds = default if timeout is None else timeout
            super().notify(message, title=title, severity=severity, timeout=seconds, markup=False)

    def _fatal_error(self) -> None:
        """Exit without Textual's traceback; `run` raises the exception, which is then reported."""
        self._close_messages_no_wait()

    @property
    def crash(self) -> Exception | None:
        """The exception that ended the app."""
        return self._exception

    def action_help_quit(self) -> None:
        """Explain Ctrl+C when nothing is selected."""
        self.notify("Nothing is selected to copy. Esc stops an answer, Ctrl+Q quits.")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The registered actions, followed by Textual's own commands."""
        if isinstance(screen, ChatScreen):
            for action in ACTIONS:
                yield SystemCommand(
                    action.title,
                    f"{keys_of(action, self._preferences.keys)}  /{action.slash}".strip(" /"),
                    lambda action=action: screen.run_worker(screen.begin(action)),
                )
        yield from super().get_system_commands(screen)  # pyright: ignore[reportUnknownMemberType]


def run(start: AppStart, paths: Paths) -> int:
    """Run the app until the user quits; returns the exit code. The engine may still be busy.

    Raises:
        Exception: the app crashed.
    """
    preferences, faults = usable_preferences(start.preferences)
    history, fault = None, ""
    try:
        history = open_history(paths)
    except HistoryError as error:
        fault = str(error)
    engine = Engine(start.session, paths)
    answering = start.answering
    app = SpecchatApp(
        engine, history, start.system, answering.sampling, answering.max_tokens, preferences
    )
    for notice in (*start.notices, *map(str, faults)):
        app.call_later(app.notify, notice, severity="warning", timeout=30)
    if fault:
        app.call_later(app.notify, f"Chats are not saved: {fault}", severity="error", timeout=10)
    if history is not None and (news := history.news()):
        app.call_later(app.notify, news, severity="warning", timeout=30)
    sys.setswitchinterval(SWITCH_SECONDS)
    with app.exit_signals.handled():
        try:
            app.run()
        finally:
            engine.close(_QUIT_SECONDS)
            if history is not None:
                history.close()
        if app.exit_signals.code is not None:
            return app.exit_signals.code
        if app.crash is not None:
            raise app.crash
        return app.return_code or 0
