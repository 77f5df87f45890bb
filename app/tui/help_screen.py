"""Every key and command on one page."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.settings.preferences import Preferences
from app.tui.actions import ACTIONS, Action
from app.tui.keymap import keys_of

_SENDS = "Enter sends, Ctrl+J or Shift+Enter begins a new line"
_SENDS_SWAPPED = "Ctrl+J or Shift+Enter sends, Enter begins a new line"
_MORE = """
In the prompt
  {sends}.
  Up and down bring back what you wrote before; Tab completes.
  @file adds a text file, @"a file" one with spaces in its name.

In the conversation
  Tab goes there and back; arrows and Page Up scroll, End returns.
  Select text with the mouse, Ctrl+C copies it. Click a code block,
  or the line below an answer, to copy that.

Esc closes this page."""


class HelpScreen(ModalScreen[None]):
    """Opened by F1."""

    BINDINGS: ClassVar = [Binding("escape,f1,q", "dismiss", "Close")]
    DEFAULT_CSS: ClassVar[str] = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll {
        width: 90%; max-width: 84; height: 90%; border: round $primary; background: $surface;
        padding: 0 1;
    }
    """

    def __init__(self, preferences: Preferences) -> None:
        super().__init__()
        self._preferences = preferences

    def compose(self) -> ComposeResult:
        preferences = self._preferences
        more = _MORE.format(sends=_SENDS if preferences.enter_sends else _SENDS_SWAPPED)
        lines = [_line(action, keys_of(action, preferences.keys)) for action in ACTIONS]
        with VerticalScroll():
            yield Static(Content("\n".join([*lines, more])))


def _line(action: Action, keys: str) -> str:
    command = f"/{action.slash} {action.argument}" if action.slash else ""
    names = ", ".join(key_name(key) for key in keys.split(","))
    return f"{names:7} {command:16} {action.title}"


def key_name(keys: str) -> str:
    """A key as it is printed on a keyboard."""
    if not keys:
        return ""
    names = {"ctrl": "Ctrl", "escape": "Esc", "shift": "Shift", "alt": "Alt"}
    return "+".join(names.get(part, part.capitalize()) for part in keys.split("+"))
