"""The list of chats: search, open, rename, remove, and undo."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList

from app.dialogue.tree import Change, Changes, OwnChanges
from app.history import History, HistoryError
from app.history.records import Chat, Preview
from app.history.schema import title_holds
from app.history.store import remove_chat
from app.learned.registered import taught_by
from app.paths import Paths
from app.printable import one_line
from app.tui.lists import CURSOR, Row, SearchScreen, columns, right, text_row
from app.tui.text_fields import PrintableInput
from app.tui.widgets import is_narrow
from app.tui.wording import quoted_title
from app.wording import relative_time

_FRAME = 4
"""Columns of a row beside its cells: the cursor, and a blank before, after and at the end."""

_TITLE, _STATE, _LEAST_MODEL, _LEAST_TIME = 38, 14, 12, 9
_TITLE_GAP = 2
_FENCE = "```"


def chat_rows(chats: Sequence[Chat]) -> list[Row]:
    """Rows: title, versions, model and time; on a narrow screen, title and time.

    Long titles get what versions, models and times leave free.
    """
    longest = max((cell_len(_title(chat)) for chat in chats), default=0)
    longest_model = max((cell_len(one_line(chat.model)) for chat in chats), default=0)
    times = max(_LEAST_TIME, *(len(relative_time(chat.updated)) for chat in chats), 0)
    states = _STATE if any(map(_state, chats)) else 0
    gap, blanks = (Content(""), 1), (Content(""), _TITLE_GAP)

    def line(chat: Chat, width: int, is_focused: bool) -> Content:
        room = width - _FRAME - times - 1
        marker = (Content(f" {CURSOR} " if is_focused else "   "), 3)
        title = Content.styled(_title(chat), "bold" if is_focused else "")
        time = right(relative_time(chat.updated), times, "$text-muted")
        if is_narrow(width):
            return columns(marker, (title, room), gap, time, gap)
        free = room - states - min(longest_model, _LEAST_MODEL)
        usual = min(_TITLE, room - _STATE - _LEAST_MODEL)
        titles = max(usual, min(longest + _TITLE_GAP, free))
        versions = _STATE if titles <= _TITLE else states
        state = (Content.styled(_state(chat), "$text-muted"), versions)
        model = (Content.styled(one_line(chat.model), "$text-muted"), room - titles - versions)
        return columns(marker, (title, titles - _TITLE_GAP), blanks, state, model, gap, time, gap)

    return [Row(str(chat.number), partial(line, chat)) for chat in chats]


def _title(chat: Chat) -> str:
    return one_line(chat.title) or "untitled"


def _state(chat: Chat) -> str:
    if chat.is_interrupted:
        return "interrupted"
    return f"{chat.versions} versions" if chat.versions > 1 else ""


def preview_lines(shown: Preview, width: int) -> Content:
    """The last question and its answer, one line each; on a narrow screen the question alone.

    If something was found, the line that holds it.
    """
    if shown.found:
        start, end = shown.place
        line = one_line(shown.found)
        cut = max(0, min(start - width // 3, len(line) - width + 8))
        marked = Content(line).stylize("reverse", start, end)[cut:]
        return columns((Content("   " + "…" * bool(cut)), 3 + bool(cut)), (marked, width - 6))
    rule, gap = (Content.styled(" ▌ ", "$text-primary"), 3), (Content("   "), 3)
    question = columns(rule, (Content(_first_line(shown.question)), width - 4))
    if is_narrow(width) or not shown.answer:
        return question
    answer = (Content.styled(_first_line(shown.answer), "$text-muted"), width - 6)
    return Content("\n").join([question, columns(gap, answer)])


def _first_line(text: str) -> str:
    """The first line of a text, but for a fence of code, and whether more follow."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_FENCE)]
    return one_line(lines[0]) + (" …" if len(lines) > 1 else "") if lines else ""


Result = TypeVar("Result")

_KEYS = (
    "Enter open · F2 rename · Del remove · Ctrl+Z undo · Esc back",
    "Enter open · F2 rename · Del remove · Esc",
    "Enter open · F2 rename · Del · Esc",
)
_RENAME_KEYS = "Enter renames · Esc keeps the title", "Enter renames · Esc keeps it"
_LIST_TOP = 2
"""Rows above the list: the search field and a blank."""


class ChatsScreen(SearchScreen[int | str | None]):
    """Returns the number of the chat to open, None if none was chosen.

    What its messages were searched for follows the number.

    touched: called with the number of each chat that was renamed, removed or restored, also later
    by an undo.
    """

    BINDINGS: ClassVar = [
        Binding("f2", "rename", "Rename", priority=True),
        Binding("delete", "remove", "Remove", priority=True),
        Binding("ctrl+z", "undo", "Undo", priority=True),
        Binding("ctrl+y", "redo", "Redo", priority=True),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ChatsScreen Dialog { layers: below above; }
    ChatsScreen.-wide Dialog { height: 45%; min-height: 16; }
    ChatsScreen #title, ChatsScreen #title:focus {
        layer: above; display: none; padding: 0; background: $panel; background-tint: $surface 0%;
    }
    ChatsScreen #details { max-height: 4; padding: 0; color: $foreground; }
    """

    def __init__(
        self, history: History, paths: Paths, changes: Changes, touched: Callable[[int], None]
    ) -> None:
        super().__init__("Chats", *_KEYS)
        self._history = history
        self._paths = paths
        self._changes = OwnChanges(changes)
        self._touched = touched
        self._chats: dict[str, Chat] = {}
        self._goes_to = ""
        """What is searched, if the highlighted chat holds it elsewhere than in its title."""
        self._renamed: Chat | None = None
        self._query.placeholder = "Search titles and messages"
        self._title = PrintableInput(compact=True, select_on_focus=False, id="title")

    def _parts(self) -> ComposeResult:
        yield from super()._parts()
        yield self._title

    def on_mount(self) -> None:
        self._show()

    def on_resize(self) -> None:
        self._leave_title()
        self.call_after_refresh(self._explain)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        del parameters
        return self._renamed is None or action == "leave"

    @on(Input.Changed, "#query")
    def _searched(self) -> None:
        self._say()
        self._show()
        self._rows.highlight(next(iter(self._chats), ""))

    def _say(self, *facts: str) -> None:
        """Say what was just done, longest version first, until the next action."""
        self._dialog.show_title("Chats", *facts)

    def _show(self) -> None:
        chats = self._or_tell(lambda: self._history.chats(self._query.value))
        if chats is None:
            return
        self._chats = {str(chat.number): chat for chat in chats}
        empty = "no chat found" if self._query.value.strip() else "no chats yet"
        self._rows.show(chat_rows(chats) or [text_row(f"   {empty}", "$text-muted")])
        self._explain()

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        chat, width = self._chosen, self._rows.size.width
        text = Content("")
        self._goes_to = ""
        if chat is not None and width:
            query = "" if title_holds(chat.title, None, self._query.value) else self._query.value
            shown = self._or_tell(lambda: self._history.preview(chat.number, query))
            if shown is None:
                return
            self._goes_to = query if shown.found else ""
            text = preview_lines(shown, width)
        self._details.styles.min_height = 1 if is_narrow(width) else 2
        self._details.update(text)

    @property
    def _chosen(self) -> Chat | None:
        return self._chats.get(self._rows.focused_id or "")

    @on(OptionList.OptionSelected)
    @on(Input.Submitted, "#query")
    def _open(self) -> None:
        if (chat := self._chosen) is not None:
            self.dismiss(f"{chat.number} {self._goes_to}" if self._goes_to else chat.number)

    def action_move(self, how: str) -> None:
        self._say()
        super().action_move(how)

    # Renaming

    def action_rename(self) -> None:
        chat, index = self._chosen, self._rows.highlighted
        if chat is None or index is None:
            return
        self._renamed = chat
        self._title.value = chat.title
        self._title.select_all()
        self._title.styles.offset = (3, _LIST_TOP + index - self._rows.scroll_offset.y)
        self._title.styles.width = max(self._rows.size.width - 4, 1)
        self._title.display = True
        self.set_focus(self._title)  # at once: it gets the keys that follow
        self._dialog.show_keys(*_RENAME_KEYS)
        self._say()

    @on(Input.Submitted, "#title")
    def _rename(self) -> None:
        chat, title = self._renamed, self._title.value.strip()
        self._leave_title()
        before = self._or_tell(lambda: self._history.facts(chat.number)["title"]) if chat else None
        if chat is not None and before is not None and title not in (before, chat.title):
            rename = partial(self._history.rename, chat.number)
            name = f"renamed {quoted_title(chat.title)}"
            if self._do(name, chat.number, partial(rename, title), partial(rename, before)):
                self._say("renamed · Ctrl+Z undoes it")

    def _leave_title(self) -> None:
        if self._renamed is not None:
            self._renamed = None
            self._title.display = False
            self.set_focus(self._query)
            self._dialog.show_keys(*_KEYS)

    # Changes

    def action_remove(self) -> None:
        chat = self._chosen
        if chat is None:
            return
        self._rows.highlight(self._beside(chat))
        remove = partial(remove_chat, self._history, chat.number, self._paths)
        restore = partial(self._history.restore, chat.number)
        if self._do(f"removed {quoted_title(chat.title)}", chat.number, remove, restore):
            learned = taught_by(self._paths, chat.mark)
            still = f", but {' and '.join(learned)} learned from it" if learned else ""
            self._say(f"removed{still} · Ctrl+Z brings it back", f"removed{still} · Ctrl+Z undoes")

    def _beside(self, chat: Chat) -> str:
        names = list(self._chats)
        index = names.index(str(chat.number))
        return (names[index + 1 :] or names[:index][-1:] or [""])[0]

    def _do(self, name: str, chat: int, do: Callable[[], None], undo: Callable[[], None]) -> bool:
        """Make a change that can be undone, here and later; False if it failed."""

        def step(work: Callable[[], None]) -> None:
            work()
            self._touched(chat)

        if not self._or_tell(lambda: step(do) or True):
            return False
        self._changes.add(Change(name, lambda: step(undo), lambda: step(do)))
        self._show()
        return True

    async def action_undo(self) -> None:
        """Undo the last change made here; then restore what was removed earlier today."""
        if self._changes.has_any:
            await self._move(self._changes.undo, "undone")
            return
        number = self._or_tell(self._history.removed_last)
        if number is None:
            self._say("nothing to undo")
            return
        if not self._or_tell(lambda: self._history.restore(number) or True):
            return
        self._touched(number)
        self._show()
        self._rows.highlight(str(number))
        self._say("brought back")

    async def action_redo(self) -> None:
        await self._move(self._changes.redo, "redone")

    async def _move(self, move: Callable[[], Awaitable[str]], done: str) -> None:
        try:
            name = await move()
        except HistoryError as error:
            self._tell(error)
            return
        if name:
            self._say(f"{done}: {name}", done)
            self._show()

    def action_leave(self) -> None:
        """Leave the title as it was, else close the screen."""
        if self._renamed is None:
            self.dismiss(None)
        else:
            self._leave_title()

    def _or_tell(self, work: Callable[[], Result]) -> Result | None:
        """Call the history; an error is shown below the list, and the result is then None."""
        try:
            return work()
        except HistoryError as error:
            self._tell(error)
            return None

    def _tell(self, error: HistoryError) -> None:
        self._details.update(
            Content.styled(f" ✕ {one_line(error.what)}: {one_line(error.why)}", "$text-error")
        )
