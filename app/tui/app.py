"""The app: an engine, a history and one screen on top of another."""

import sys
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import Screen

from app.engine import Engine
from app.history import History, HistoryError
from app.history.opening import open_history
from app.paths import Paths
from app.session_options import SessionOptions
from app.settings.preferences import Preferences, read_preferences
from app.tui.actions import ACTIONS
from app.tui.appearance import set_theme
from app.tui.conversation.dialogue import Dialogue
from app.tui.keymap import check_keys, keys_of
from app.tui.screens.chat_screen import ChatScreen
from app.tui.terminal.exit_signals import Ending
from app.tui.terminal.inert_paste import keep_pastes_inert
from app.tui.terminal.printable_lines import PrintableLines, show_stand_ins
from app.tui.terminal.terminal_driver import driver_class, is_gone
from backends.base import UsageError
from decoding.sampling import SamplingSettings

_HEAD_START = 0.05
"""Seconds for the screen to be painted before loading takes the processor."""

_QUIT_SECONDS = 0.8

_TERMINAL_SECONDS = 1.0
"""Between two looks whether the terminal is there still."""

_TOLD_SECONDS = 3.0
_WARNED_SECONDS = 10.0

SWITCH_SECONDS = 0.0005
"""How long one thread may keep the other waiting; Python's usual 5 ms are a token's time."""


class SpecchatApp(App[None]):
    """Everything a person sees of specchat in a terminal."""

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
        self.ending = Ending()
        self._dialogue = Dialogue(history, system, engine.options.model or "")
        self._settings = settings
        self._max_tokens = max_tokens
        self._preferences = preferences or read_preferences(Paths.of_this_user())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What each line of every widget passes before it is painted."""
        return [*super().get_line_filters(), self._printable]

    def on_mount(self) -> None:
        """Show the conversation at once; the model loads meanwhile."""
        chat = ChatScreen(
            self.engine, self._dialogue, self._settings, self._max_tokens, self._preferences
        )
        self.set_keymap(
            {
                action.name: keys_of(action, self._preferences.keys)
                for action in ACTIONS
                if action.name in self._preferences.keys
            }
        )
        self.push_screen(chat)
        self._use_theme(self._preferences.theme)
        self.call_after_refresh(self.set_timer, _HEAD_START, self.engine.start)
        self.ending.begin(self.exit)
        if not self.is_headless:
            self.set_interval(_TERMINAL_SECONDS, self._look_for_terminal)

    def _look_for_terminal(self) -> None:
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
        """Tell something for a short while; what is being told already is not told twice.

        It is never taken for markup, for which `Widget.notify` asks: it may name foreign things.
        """
        if all(one.message != message for one in self._notifications):
            usual = _TOLD_SECONDS if severity == "information" else _WARNED_SECONDS
            seconds = usual if timeout is None else timeout
            super().notify(message, title=title, severity=severity, timeout=seconds, markup=False)

    def _fatal_error(self) -> None:
        """A crash ends the app quietly; `run` raises what happened, which is told in a sentence."""
        self._close_messages_no_wait()

    @property
    def crash(self) -> Exception | None:
        """What ended the app, where its user did not."""
        return self._exception

    def action_help_quit(self) -> None:
        """Ctrl+C with nothing to copy."""
        self.notify("Nothing is selected to copy. Esc stops an answer, Ctrl+Q quits.")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The registered actions, then Textual's own."""
        if isinstance(screen, ChatScreen):
            for action in ACTIONS:
                yield SystemCommand(
                    action.title,
                    f"{keys_of(action, self._preferences.keys)}  /{action.slash}".strip(" /"),
                    lambda action=action: screen.run_worker(screen.begin(action)),
                )
        yield from super().get_system_commands(screen)


def run(
    options: SessionOptions,
    paths: Paths,
    system: str,
    settings: SamplingSettings,
    max_tokens: int,
) -> int:
    """Run the app until the user leaves, and return the exit code; the engine may be at work still.

    Raises:
        UsageError: the settings file, a variable or a key of the user's cannot be used.
        Exception: the app crashed.
    """
    preferences = read_preferences(paths)
    check_keys(preferences.keys, preferences.file)
    history, fault = None, ""
    try:
        history = open_history(paths)
    except HistoryError as error:
        fault = str(error)
    engine = Engine(options, paths)
    app = SpecchatApp(engine, history, system, settings, max_tokens, preferences)
    if fault:
        app.call_later(app.notify, f"Chats are not saved: {fault}", severity="error", timeout=10)
    if history is not None and (news := history.news()):
        app.call_later(app.notify, news, severity="warning", timeout=30)
    sys.setswitchinterval(SWITCH_SECONDS)
    with app.ending.awaited():
        try:
            app.run()
        finally:
            engine.close(_QUIT_SECONDS)
            if history is not None:
                history.close()
        if app.ending.code is not None:
            return app.ending.code
        if app.crash is not None:
            raise app.crash
        return app.return_code or 0
