"""Every key and command on one page."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Markdown

from app.settings.preferences import Preferences
from app.tui.actions import ACTIONS
from app.tui.keymap import keys_of

_SENDS = "Enter sends, Ctrl+J or Shift+Enter begins a new line"
_SENDS_SWAPPED = "Ctrl+J or Shift+Enter sends, Enter begins a new line"
_MORE = """
**In the prompt**: {sends}, up and down bring back
what you wrote before, Tab completes a command, `@file` adds a text file, `@"a file"` one with
spaces in its name.

**In the conversation**: Tab goes there and back; arrows, Page Up and Page Down scroll, End returns
to the end. Text can be selected with the mouse; Ctrl+C copies it.

Escape closes this page.
"""


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
        own = self._preferences.keys
        more = _MORE.format(sends=_SENDS if self._preferences.enter_sends else _SENDS_SWAPPED)
        rows = [
            f"| {one.title} | {_keys(keys_of(one, own))} | {_slash(one.slash, one.argument)} |"
            for one in ACTIONS
        ]
        table = "\n".join(["| | key | command |", "| --- | --- | --- |", *rows])
        with VerticalScroll():
            yield Markdown(f"{table}\n{more}")


def _keys(keys: str) -> str:
    return keys.replace("ctrl+", "Ctrl+").replace("escape", "Esc").replace(",", ", ")


def _slash(slash: str, argument: str) -> str:
    return f"`/{slash} {argument}`".replace(" `", "`") if slash else ""
