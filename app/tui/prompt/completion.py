"""Suggestions above the prompt: slash commands and file names."""

from typing import ClassVar

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.actions import matching
from app.chat.attachments import file_names
from app.printable import one_line
from app.tui.typed_app import typed_app

_MOST_SUGGESTIONS = 6

_OTHER_ROWS = 6
"""Rows of the screen that the suggestions leave to the prompt and the conversation."""

COMMAND, FILE = "/", "@"
"""First character of a suggestion: its kind."""


class Completion(OptionList):
    """Completions of what is typed at the cursor; hidden while there are none."""

    class Clicked(Message):
        """A suggestion was clicked."""

        def __init__(self, suggestion: str) -> None:
            super().__init__()
            self.suggestion = suggestion

    class Shown(Message):
        """The suggestions have come, or gone."""

        def __init__(self, is_shown: bool) -> None:
            super().__init__()
            self.is_shown = is_shown

    app = typed_app
    can_focus = False
    DEFAULT_CSS: ClassVar[str] = """
    Completion {
        height: auto; max-height: 6; display: none; border: none; padding: 0 1;
        background: $background;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._completed = ("", "")

    def suggest(self, text: str, before_cursor: str) -> None:
        """Show suggestions: commands if the text begins with one, else files named at the cursor.

        before_cursor: the cursor's line, up to the cursor.
        """
        if self._completed == (text, before_cursor):
            return
        self._completed = text, before_cursor
        self.clear_options()
        self.add_options((_commands(text) or _files(before_cursor))[: self._most])
        self._show(self.option_count > 0)
        if self.display:
            self.highlighted = 0

    @property
    def _most(self) -> int:
        """How many suggestions the height of the screen allows."""
        return max(0, min(_MOST_SUGGESTIONS, (self.app.size.height - _OTHER_ROWS) // 2))

    def hide(self) -> None:
        """Hide the suggestions until the text changes."""
        self._show(False)

    def _show(self, is_shown: bool) -> None:
        if is_shown != self.display:
            self.display = is_shown
            self.post_message(self.Shown(is_shown))

    def pick(self) -> str | None:
        """The highlighted suggestion, which closes the list."""
        if self.highlighted is None:
            return None
        return self._close(self.get_option_at_index(self.highlighted))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Clicked(self._close(event.option)))

    def _close(self, option: Option) -> str:
        self._show(False)
        self._completed = "", ""
        return option.id or ""


def _commands(text: str) -> list[Option]:
    if not text.startswith("/") or " " in text or "\n" in text:
        return []
    return [
        Option(
            Content(f"{f'/{slash} {action.argument}':17} {action.title}"), id=f"{COMMAND}{slash}"
        )
        for slash, action in matching(text)[:_MOST_SUGGESTIONS]
    ]


def _files(before_cursor: str) -> list[Option]:
    names = file_names(before_cursor)[:_MOST_SUGGESTIONS]
    return [Option(Content(one_line(name)), id=f"{FILE}{name}") for name in names]
