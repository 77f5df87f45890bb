"""Every chat: search, open, rename, remove and bring back."""

import datetime
from collections.abc import Callable
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.history import Chat, History, HistoryError
from app.tui.ordered_keys import OrderedInput

Result = TypeVar("Result")

_HINT = "Enter opens · F2 renames · Del removes · Ctrl+Z brings back · Esc leaves"


class ChatsScreen(ModalScreen[int | None]):
    """Returns the number of the chat to open, None for none."""

    BINDINGS: ClassVar = [
        Binding("escape", "leave", "Back"),
        Binding("down", "into_list", show=False),
        Binding("f2", "rename", "Rename"),
        Binding("delete", "remove", "Remove"),
        Binding("ctrl+z", "restore", "Bring back", priority=True),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ChatsScreen { align: center middle; }
    ChatsScreen Vertical {
        width: 90%; max-width: 90; height: 80%; border: round $primary; background: $surface;
    }
    ChatsScreen OptionList { height: 1fr; border: none; }
    ChatsScreen #hint { color: $text-muted; padding: 0 1; }
    """

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self._removed: list[int] = []
        self._renamed: int | None = None

    def compose(self) -> ComposeResult:
        with Vertical():
            yield OrderedInput(placeholder="Search in titles and messages", id="query")
            yield OptionList()
            yield Static(_HINT, id="hint")

    def on_mount(self) -> None:
        self._show("")
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        if self._renamed is None:
            self._show(event.value)

    def _guarded(self, change: Callable[[], Result]) -> Result | None:
        """What a call on the history gives; what goes wrong is told."""
        try:
            return change()
        except HistoryError as error:
            self.notify(str(error), severity="error")
            return None

    def _show(self, query: str) -> None:
        listed = self.query_one(OptionList)
        listed.clear_options()
        found = self._guarded(lambda: self._history.chats(query)) or []
        listed.add_options([Option(_line(chat), id=str(chat.number)) for chat in found])
        if found:
            listed.highlighted = 0

    @property
    def _chosen(self) -> int | None:
        listed = self.query_one(OptionList)
        if listed.highlighted is None:
            return None
        return int(listed.get_option_at_index(listed.highlighted).id or 0)

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(int(event.option.id or 0))

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        if self._renamed is None:
            self.dismiss(self._chosen)
            return
        number, self._renamed = self._renamed, None
        self._guarded(lambda: self._history.rename(number, event.value.strip()))
        event.input.placeholder = "Search in titles and messages"
        event.input.value = ""
        self._show("")

    def action_into_list(self) -> None:
        """From the search to the list."""
        self.query_one(OptionList).focus()

    def action_rename(self) -> None:
        """Type another title for the chosen chat."""
        number = self._chosen
        chat = self._guarded(lambda: self._history.chat(number)) if number else None
        if chat is None:
            return
        self._renamed = number
        field = self.query_one(Input)
        field.placeholder = "New title, then Enter"
        field.value = chat.title
        field.focus()

    def action_remove(self) -> None:
        """Remove the chosen chat; it can be brought back."""
        number = self._chosen
        if number is not None:
            self._guarded(lambda: self._history.remove(number))
            self._removed.append(number)
            self._show(self.query_one(Input).value)

    def action_restore(self) -> None:
        """Bring back what was removed last."""
        if self._removed:
            number = self._removed.pop()
            self._guarded(lambda: self._history.restore(number))
            self._show(self.query_one(Input).value)

    def action_leave(self) -> None:
        """Back to the chat, or from a new title to the search."""
        if self._renamed is None:
            self.dismiss(None)
            return
        self._renamed = None
        self.query_one(Input).value = ""
        self._show("")


def _line(chat: Chat) -> Content:
    day = datetime.datetime.fromtimestamp(chat.updated).astimezone().strftime("%Y-%m-%d %H:%M")
    return Content(f"{day}  {chat.title or 'untitled'}  ({chat.messages} messages)")
