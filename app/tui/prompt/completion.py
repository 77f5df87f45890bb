"""Suggestions above the prompt: slash commands and file names."""

from dataclasses import dataclass
from typing import ClassVar

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.actions import matching
from app.chat.named_files import file_names
from app.printable import one_line
from app.tui.store import Store
from app.tui.widgets import typed_app

_MOST_ROWS = 6

_MOST_SUGGESTIONS = 200
"""Suggestions beyond which typing on is quicker than scrolling."""

_NARROW = 60
"""Columns below which commands stand without their arguments."""

_OTHER_ROWS = 6
"""Rows of the screen that the suggestions leave to the prompt and the conversation."""

COMMAND, FILE = "/", "@"
"""First character of a suggestion: its kind."""


class Completion(OptionList):
    """Completions of what is typed at the cursor; hidden while there are none."""

    @dataclass
    class Clicked(Message):
        suggestion: str

    app = typed_app
    can_focus = False
    DEFAULT_CSS: ClassVar[str] = """
    Completion {
        height: auto; display: none; border: none; padding: 0 1;
        background: $background; scrollbar-size-vertical: 1;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._completed = ("", "")

    def suggest(self, text: str, before_cursor: str) -> None:
        """Show suggestions: commands if the text begins with one, else files named at the cursor.

        before_cursor: the cursor's line, up to the cursor.
        """
        if self._completed == (text, before_cursor):
            return
        self._completed = text, before_cursor
        rows = max(0, min(_MOST_ROWS, (self.app.size.height - _OTHER_ROWS) // 2))
        self.styles.max_height = rows
        commands = _commands(text, is_narrow=self.app.size.width < _NARROW) if rows else []
        options = commands or (_files(before_cursor) if rows else [])
        self.clear_options()
        self.add_options(_shortened(options))
        self._show((COMMAND if commands else FILE) if options else "")
        if self.display:
            self.highlighted = 0

    def hide(self) -> None:
        """Hide the suggestions until the text changes."""
        self._show("")

    def _show(self, kind: str) -> None:
        self.display = bool(kind)
        self._store.completing = kind

    def pick(self) -> str | None:
        if self.highlighted is None:
            return None
        return self._close(self.get_option_at_index(self.highlighted))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Clicked(self._close(event.option)))

    def _close(self, option: Option) -> str:
        self._show("")
        self._completed = "", ""
        return option.id or ""


def _commands(text: str, *, is_narrow: bool) -> list[Option]:
    if not text.startswith("/") or " " in text or "\n" in text:
        return []
    found = matching(text)
    names = [f"/{slash} {'' if is_narrow else action.argument}".rstrip() for slash, action in found]
    width = max(map(len, names), default=0) + 1
    return [
        Option(Content(f"{name:{width}} {action.title}"), id=f"{COMMAND}{slash}")
        for name, (slash, action) in zip(names, found, strict=True)
    ]


def _files(before_cursor: str) -> list[Option]:
    return [
        Option(Content(one_line(name)), id=f"{FILE}{name}") for name in file_names(before_cursor)
    ]


def _shortened(options: list[Option]) -> list[Option]:
    more = len(options) - _MOST_SUGGESTIONS
    if more <= 0:
        return options
    return [*options[:_MOST_SUGGESTIONS], Option(f"… {more:,} more: type on", disabled=True)]
