"""Dialogs: a page that scrolls, lists whose highlighted row begins with ▸, and one that picks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.fuzzy import Matcher
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.printable import one_line
from app.tui.text_fields import PrintableInput
from app.tui.widgets import MUTED, is_narrow, keys_line, typed_app
from app.tui.wording import longest_fitting

_CORNERS = 6
"""Columns of the frame beside its texts: two corners, two lines and two blanks."""


class Dialog(Vertical):
    """A rounded frame; keys: what they do, in as many words as there is room for, longest first.

    It is a box where the screen is wide, else it fills the screen.
    """

    SCOPED_CSS = False
    DEFAULT_CSS: ClassVar[str] = """
    Dialog {
        width: 100%; height: 100%; border: round $foreground-muted; background: $surface;
        border-title-color: $foreground; border-title-background: $surface;
        border-subtitle-align: left;
        border-subtitle-color: $text-muted; border-subtitle-background: $surface;
    }
    .-wide Dialog { width: 88; height: 56%; min-height: 20; }
    """

    def __init__(self, title: str, *keys: str) -> None:
        super().__init__()
        self.auto_links = False
        self._title = one_line(title)
        self._facts: tuple[str, ...] = ()
        self._keys = keys

    def show_title(self, title: str, *facts: str) -> None:
        """Show a name, and at the right the first version of a fact that there is room for."""
        self._title, self._facts = one_line(title), tuple(map(one_line, facts))
        self._fit()

    def show_keys(self, *keys: str) -> None:
        """Show other keys, longest version first."""
        if keys != self._keys:
            self._keys = keys
            self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        room = self.outer_size.width - _CORNERS
        left = room - cell_len(self._title) - 3
        fact = next((fact for fact in self._facts if cell_len(fact) <= left), "")
        title = Content.styled(self._title, "bold")
        if fact:
            line = "─" * (left - cell_len(fact) + 1)
            title = Content.assemble(
                title, (f" {line}", "$text-muted"), (f" {fact}", "$text-muted")
            )
        self.border_title = title
        self.border_subtitle = keys_line(longest_fitting(self._keys, room))


CURSOR = "▸"

Render = Callable[[int, bool], Content]
"""Draws a row, given its columns and whether it is highlighted."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list; a row without an id is a heading, which cannot be highlighted."""

    id: str | None
    render: Render


def text_row(text: str, style: str = "") -> Row:
    return Row(None, lambda _width, _is_focused: Content.styled(text, style))


def more_row(name: str, indent: str, words: str, short: str = "") -> Row:
    """A line that Enter unfolds, or that cannot be chosen; short: where the screen is narrow."""

    def render(width: int, is_focused: bool) -> Content:
        text = short if short and is_narrow(width + 2) else words
        style = "" if is_focused else "$text-muted"
        return Content.styled(f" {CURSOR if is_focused else ' '}{indent}{text}", style)

    return Row(name, render)


def lead_of(is_focused: bool, mark: str, mark_style: str) -> tuple[Content, int]:
    """The first three columns of a row: its mark, and the cursor in its place or before it."""
    cursor = CURSOR if is_focused else " "
    before, here = (cursor, mark) if mark else (" ", cursor)
    return Content.assemble(before, (here, mark_style), " "), 3


class PageScreen(ModalScreen[None]):
    """A dialog with a page that scrolls."""

    BINDINGS: ClassVar = [Binding("escape,q", "dismiss", "Back")]
    DEFAULT_CSS: ClassVar[str] = """
    PageScreen { align: center middle; }
    PageScreen.-wide Dialog { height: 90%; }
    PageScreen VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    """

    def __init__(self, title: str, *parts: Widget) -> None:
        super().__init__()
        self._title = title
        self._scroll = VerticalScroll(*parts)

    def compose(self) -> ComposeResult:
        with Dialog(self._title, "↑ ↓ Page Up Page Down scroll · Esc back", "↑ ↓ scroll · Esc"):
            yield self._scroll

    def on_mount(self) -> None:
        self._scroll.focus()


class RowList(OptionList):
    """Rows that are drawn for the present width; the highlighted one is told that it is."""

    DEFAULT_CSS: ClassVar[str] = """
    RowList, RowList:focus {
        height: 1fr; border: none; padding: 0; background: $surface; background-tint: $surface 0%;
        text-wrap: nowrap; text-overflow: ellipsis; scrollbar-size-vertical: 1;
        & > .option-list--option { padding: 0; }
        & > .option-list--option-disabled { color: $foreground; }
        & > .option-list--option-highlighted {
            color: $foreground; background: $surface; text-style: none;
        }
        & > .option-list--option-hover { background: $panel; }
    }
    """

    marks_unfocused = True
    """Whether the highlighted row is drawn as such while something else has the focus."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[Row, ...] = ()

    @property
    def focused_id(self) -> str | None:
        if self.highlighted is None or self.highlighted >= len(self._rows):
            return None
        return self._rows[self.highlighted].id

    def show(self, rows: Sequence[Row]) -> None:
        """Show rows; a highlight that is seen stays on its row, by id; else it is on the first."""
        focused = self.focused_id if self._marks_highlighted else None
        ids = [row.id for row in rows]
        if ids == [row.id for row in self._rows]:
            self._rows = tuple(rows)
            self._redraw()
            return
        scrolled = self.scroll_offset.y
        self.clear_options()
        self._rows = tuple(rows)
        width = self.scrollable_content_region.width
        self.add_options(
            [Option(row.render(width, False), id=row.id, disabled=row.id is None) for row in rows]
        )
        first = next((index for index, name in enumerate(ids) if name is not None), None)
        self.highlighted = ids.index(focused) if focused in ids and focused else first
        self.scroll_to(y=scrolled, animate=False)

    def highlight(self, name: str) -> None:
        ids = [row.id for row in self._rows]
        if name in ids:
            self.highlighted = ids.index(name)

    def watch_highlighted(self, highlighted: int | None) -> None:
        super().watch_highlighted(highlighted)
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self._redraw()

    @property
    def _marks_highlighted(self) -> bool:
        return self.has_focus or self.marks_unfocused

    def _redraw(self) -> None:
        width = self.scrollable_content_region.width
        highlighted = self.highlighted if self._marks_highlighted else None
        for index, row in enumerate(self._rows):
            prompt = row.render(width, index == highlighted)
            if index < self.option_count and not self._is_shown(index, prompt):
                self.replace_option_prompt_at_index(index, prompt)

    def _is_shown(self, index: int, prompt: Content) -> bool:
        shown = self.get_option_at_index(index).prompt
        return isinstance(shown, Content) and shown.is_same(prompt)


def columns(*cells: tuple[Content, int]) -> Content:
    """Texts in columns of a width each; a text that is too long ends with an ellipsis."""
    return Content("").join(
        [text.truncate(max(width, 0), ellipsis=True, pad=True) for text, width in cells]
    )


def right(text: str, width: int, style: str = "") -> tuple[Content, int]:
    return Content.styled(text.rjust(width), style), width


class ListScreen(ModalScreen[ScreenResultType]):
    """A dialog with a list, and below it what there is to say of the highlighted row."""

    app = typed_app
    BINDINGS: ClassVar = [Binding("escape", "leave", "Back")]
    DEFAULT_CSS: ClassVar[str] = """
    ListScreen { align: center middle; }
    ListScreen #details {
        height: auto; min-height: 2; max-height: 5; padding: 0 1; color: $text-muted;
    }
    ListScreen #query, ListScreen #query:focus { padding: 0 1; background-tint: $surface 0%; }
    ListScreen #gap { height: 1; }
    """

    def __init__(self, title: str, *keys: str) -> None:
        super().__init__()
        self._dialog = Dialog(title, *keys)
        self._rows = RowList()
        self._details = Static(id="details")

    def compose(self) -> ComposeResult:
        with self._dialog:
            yield from self._parts()

    def _parts(self) -> ComposeResult:
        yield self._rows
        yield self._details

    def action_leave(self) -> None:
        self.dismiss(None)


class SearchScreen(ListScreen[ScreenResultType]):
    """A list below a search field, which keeps the focus."""

    BINDINGS: ClassVar = [
        Binding("up", "move('cursor_up')", show=False, priority=True),
        Binding("down", "move('cursor_down')", show=False, priority=True),
        Binding("pageup", "move('page_up')", show=False, priority=True),
        Binding("pagedown", "move('page_down')", show=False, priority=True),
    ]

    def __init__(self, title: str, *keys: str) -> None:
        super().__init__(title, *keys)
        self._query = PrintableInput(compact=True, select_on_focus=False, id="query")
        self._rows.can_focus = False

    def _parts(self) -> ComposeResult:
        yield self._query
        yield Static(id="gap")
        yield from super()._parts()

    def on_mount(self) -> None:
        self._query.focus()

    def action_move(self, how: str) -> None:
        getattr(self._rows, f"action_{how}")()


_BESIDE = 32
"""Columns beside a name that are kept for what is told about it."""


class PickScreen(SearchScreen[str | None]):
    """Returns the id of what is picked, None for nothing.

    items: by id, a name and a line about it, and more lines for below. present: the id of what is
    in use. show: shows on the whole screen what is highlighted, and in the end what was in use if
    nothing is picked.
    """

    BINDINGS: ClassVar = [Binding("enter", "pick", "Use", priority=True)]

    def __init__(
        self,
        title: str,
        items: Mapping[str, tuple[str, str]],
        present: str | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(title, f"Enter {'run' if present is None else 'use'} · Esc back")
        self._items = items
        self._present = present
        self._try_on = show
        self._details.display = present is not None
        self._query.placeholder = f"Search {title.lower()}"
        self._dialog.show_title(title, *(["● in use"] if present in items else []))

    def on_mount(self) -> None:
        self._show()
        self._rows.highlight(self._present or "")

    @on(Input.Changed)
    def _show(self) -> None:
        best = list(self._items)
        if query := self._query.value:
            match = Matcher(query).match
            scores = {name: match(" ".join(self._items[name])) for name in best}
            best = sorted(filter(scores.get, best), key=lambda name: -scores[name])
        self._rows.show([self._row(name) for name in best])
        self._rows.highlight(next(iter(best), ""))

    def _row(self, name: str) -> Row:
        def render(width: int, is_focused: bool) -> Content:
            lead = lead_of(is_focused, "●" if name == self._present else "", "$text-primary")
            text, about = self._items[name]
            label = Content.styled(one_line(text), "bold" if is_focused else "")
            room = width - lead[1] - (0 if is_narrow(width + 2) else _BESIDE)
            named = min(max(cell_len(text) for text, _ in self._items.values()) + 2, room)
            note = Content.styled(about.partition("\n")[0], MUTED)
            gap = Content(""), 1
            return columns(lead, (label, named - 1), gap, (note, width - lead[1] - named))

        return Row(name, render)

    @on(OptionList.OptionHighlighted)
    def _tell(self) -> None:
        name = self._rows.focused_id
        if name is not None:
            self._details.update(Content(self._items[name][1].rpartition("\n")[2]))
            if self._try_on is not None:
                self._try_on(name)

    @on(OptionList.OptionSelected)
    def action_pick(self) -> None:
        if self._rows.focused_id is not None:
            self.dismiss(self._rows.focused_id)

    def action_leave(self) -> None:
        if self._try_on is not None and self._present is not None:
            self._try_on(self._present)
        self.dismiss(None)
