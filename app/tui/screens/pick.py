"""A dialog to pick a command or a preset from, or a theme, which is seen while it is looked at."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.binding import Binding
from textual.content import Content
from textual.fuzzy import Matcher
from textual.widgets import Input, OptionList

from app.printable import one_line
from app.tui.screens.lists import Row, SearchScreen, columns, is_narrow, lead_of
from app.tui.widgets import MUTED

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
    def _search(self, event: Input.Changed) -> None:
        self._show(event.value)

    def _show(self, query: str = "") -> None:
        best = list(self._items)
        if query:
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
