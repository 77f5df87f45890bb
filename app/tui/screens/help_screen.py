"""The help page: every key and command."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.actions import ACTIONS, Action
from app.settings.preferences import Preferences
from app.tui.keymap import keys_of
from app.tui.typed_app import typed_app

_WIDE = 60
"""Columns from which an action fits on one line."""

_SENDS = "Enter sends, Ctrl+J or Shift+Enter starts a new line"
_SENDS_SWAPPED = "Ctrl+J or Shift+Enter sends, Enter starts a new line"
_MORE = """
In the prompt
  {sends}.
  Up and Down recall earlier questions.
  Tab completes commands and files.
  @file adds a text file, @"a file" one with spaces.

In the conversation
  Tab moves the focus there and back.
  Arrows and Page Up scroll, End returns.
  Select text with the mouse, Ctrl+C copies it.
  Click a code block to copy it.
  Click the line below an answer to copy the answer.

Esc closes this page."""


class HelpScreen(ModalScreen[None]):
    """Lists keys and slash commands."""

    app = typed_app
    BINDINGS: ClassVar = [Binding("escape,f1,q", "dismiss", "Close")]
    DEFAULT_CSS: ClassVar[str] = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll {
        width: 90%; max-width: 84; height: 90%; border: round $primary; background: $surface;
        padding: 0 1;
    }
    HelpScreen.-narrow VerticalScroll { width: 100%; }
    """

    def __init__(self, preferences: Preferences) -> None:
        super().__init__()
        self._preferences = preferences

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._page())

    def on_resize(self) -> None:
        """Lay the page out for the new width."""
        self.set_class(self._is_narrow, "-narrow")
        self.query_one(Static).update(self._page())

    @property
    def _is_narrow(self) -> bool:
        return self.app.size.width < _WIDE

    def _page(self) -> Content:
        preferences = self._preferences
        more = _MORE.format(sends=_SENDS if preferences.enter_sends else _SENDS_SWAPPED)
        line = _two_lines if self._is_narrow else _line
        lines = [line(action, keys_of(action, preferences.keys)) for action in ACTIONS]
        return Content("\n".join([*lines, more]))


def _line(action: Action, keys: str) -> str:
    return f"{_key_names(keys):7} {_command(action):16} {action.title}"


def _two_lines(action: Action, keys: str) -> str:
    how = "  ".join(filter(None, [_key_names(keys), _command(action)]))
    return f"{how}\n  {action.title}"


def _command(action: Action) -> str:
    return f"/{action.slash} {action.argument}".rstrip() if action.slash else ""


def _key_names(keys: str) -> str:
    return ", ".join(key_name(key) for key in keys.split(","))


def key_name(keys: str) -> str:
    """A key as it is labelled on a keyboard."""
    if not keys:
        return ""
    names = {"ctrl": "Ctrl", "escape": "Esc", "shift": "Shift", "alt": "Alt"}
    return "+".join(names.get(part, part.capitalize()) for part in keys.split("+"))
