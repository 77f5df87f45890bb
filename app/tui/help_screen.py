"""Every key and command on one page."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.tui.actions import ACTIONS, Action

_MORE = """
In the prompt
  Enter sends; Ctrl+J or Shift+Enter begins a new line.
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

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Content("\n".join([*map(_line, ACTIONS), _MORE])))


def _line(action: Action) -> str:
    command = f"/{action.slash} {action.argument}" if action.slash else ""
    return f"{key_name(action.keys):7} {command:16} {action.title}"


def key_name(keys: str) -> str:
    """A key as it is printed on a keyboard."""
    if not keys:
        return ""
    names = {"ctrl": "Ctrl", "escape": "Esc", "shift": "Shift", "alt": "Alt"}
    return "+".join(names.get(part, part.capitalize()) for part in keys.split("+"))
