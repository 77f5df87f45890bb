"""The list of chats: search, open, rename, remove and restore."""

import datetime
from collections.abc import Callable
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.history import Chat, History, HistoryError
from app.history.derived_data import remove_chat
from app.paths import Paths
from app.printable import one_line
from app.tui.prompt.text_fields import PrintableInput

Result = TypeVar("Result")

_SEARCH = "Search in titles and messages"
_RENAME_HINT = "New title: Enter saves it · Esc keeps the old one"
_NARROW = 60
"""Columns below which a line has no year, time and message count."""

_HINT = "Enter opens · F2 renames · Del removes · Ctrl+Z restores · Esc closes"


class ChatsScreen(ModalScreen[int | None]):
    """Returns the number of the chat to open, None if none was chosen."""

    BINDINGS: ClassVar = [
        Binding("escape", "leave", "Back"),
        Binding("down", "into_list", show=False),
        Binding("f2", "rename", "Rename"),
        Binding("delete", "remove", "Remove"),
        Binding("ctrl+z", "restore", "Restore", priority=True),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ChatsScreen { align: center middle; }
    ChatsScreen Vertical {
        width: 100%; max-width: 120; height: 80%; border: round $primary; background: $surface;
    }
    ChatsScreen OptionList {
        height: 1fr; border: none; scrollbar-gutter: stable;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    ChatsScreen #hint { color: $text-muted; padding: 0 1; height: auto; }
    """

    def __init__(self, history: History, paths: Paths) -> None:
        super().__init__()
        self._history = history
        self._paths = paths
        self._renamed: int | None = None

    def compose(self) -> ComposeResult:
        with Vertical():
            yield PrintableInput(placeholder=_SEARCH, select_on_focus=False, id="query")
            yield OptionList()
            yield Static(_HINT, id="hint")

    def on_mount(self) -> None:
        self._show("")
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        """Truncate the titles to the new width."""
        highlighted = self.query_one(OptionList).highlighted
        self._show("" if self._renamed is not None else self.query_one(Input).value)
        self.query_one(OptionList).highlighted = highlighted

    def on_key(self, event: events.Key) -> None:
        """Type into the search field while the list has the focus."""
        if event.is_printable and event.character and isinstance(self.focused, OptionList):
            event.stop()
            field = self.query_one(Input)
            field.focus()
            field.insert_text_at_cursor(event.character)

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        if self._renamed is None:
            self._show(event.value)

    def _or_notify(self, change: Callable[[], Result]) -> Result | None:
        """Call the history; an error is notified, and the result is then None."""
        try:
            return change()
        except HistoryError as error:
            self.notify(str(error), severity="error")
            return None

    def _show(self, query: str) -> None:
        option_list = self.query_one(OptionList)
        option_list.clear_options()
        chats = self._or_notify(lambda: self._history.chats(query)) or []
        room = option_list.scrollable_content_region.width
        option_list.add_options([Option(_line(chat, room), id=str(chat.number)) for chat in chats])
        if chats:
            option_list.highlighted = 0
        else:
            empty = "No chat found." if query.strip() else "There are no chats."
            option_list.add_option(Option(empty, disabled=True))

    @property
    def _chosen(self) -> int | None:
        option_list = self.query_one(OptionList)
        if option_list.highlighted is None:
            return None
        return int(option_list.get_option_at_index(option_list.highlighted).id or 0)

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(int(event.option.id or 0))

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        if self._renamed is None:
            self.dismiss(self._chosen)
            return
        number = self._renamed
        self._or_notify(lambda: self._history.rename(number, event.value.strip()))
        self._search_again()

    def _search_again(self) -> None:
        """Make the title field the search field again."""
        self._renamed = None
        field = self.query_one(Input)
        field.placeholder, field.value, field.border_title = _SEARCH, "", ""
        self.query_one("#hint", Static).update(_HINT)
        self._show("")

    def action_into_list(self) -> None:
        """Move the focus from the search to the list."""
        self.query_one(OptionList).focus()

    def action_rename(self) -> None:
        """Edit the title of the highlighted chat."""
        number = self._chosen
        chat = self._or_notify(lambda: self._history.chat(number)) if number else None
        if chat is None:
            return
        self._renamed = number
        field = self.query_one(Input)
        field.placeholder = field.border_title = "New title"
        field.value = chat.title
        field.focus()
        field.select_all()
        self.query_one("#hint", Static).update(_RENAME_HINT)

    def action_remove(self) -> None:
        """Remove the highlighted chat; it can be restored."""
        number = self._chosen
        if number is not None:
            self._or_notify(lambda: remove_chat(self._history, number, self._paths))
            self._show(self.query_one(Input).value)

    def action_restore(self) -> None:
        """Restore the chat removed last."""
        number = self._or_notify(self._history.removed_last)
        if number is None:
            self.notify("No chat was removed in the last day.")
            return
        self._or_notify(lambda: self._history.restore(number))
        self._show(self.query_one(Input).value)

    def action_leave(self) -> None:
        """Close the screen, or stop renaming."""
        if self._renamed is None:
            self.dismiss(None)
            return
        self._search_again()


def _line(chat: Chat, room: int) -> Content:
    """One line of at most `room` columns; the title is truncated."""
    time = datetime.datetime.fromtimestamp(chat.updated).astimezone()
    messages = "1 message" if chat.messages == 1 else f"{chat.messages} messages"
    before, after = f"{time:%Y-%m-%d %H:%M}  ", f"  {messages}"
    if room < _NARROW:
        before, after = f"{time:%m-%d}  ", ""
    left = max(room - len(before) - len(after), 1)
    title = Content(one_line(chat.title) or "untitled").truncate(left, ellipsis=True, pad=True)
    return Content.assemble(before, title, after)
