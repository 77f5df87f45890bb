"""A dialog to pick a command from, or a theme, which is seen while it is looked at."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import on
from textual.binding import Binding
from textual.content import Content
from textual.fuzzy import Matcher
from textual.widgets import Input, OptionList

from app.tui.screens.lists import Row, SearchScreen, columns, is_narrow, lead_of
from app.tui.widgets import MUTED


class PickScreen(SearchScreen[str | None]):
    """Returns the id of what is picked, None for nothing.

    items: by id, a name and what is told beside it. present: the id of what is in use. show: shows
    on the whole screen what is highlighted, and in the end what was in use if nothing is picked.
    """

    BINDINGS: ClassVar = [Binding("enter", "pick", "Use", priority=True)]

    def __init__(
        self,
        title: str,
        items: Mapping[str, tuple[str, str]],
        present: str = "",
        show: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(title, f"Enter {'use' if present else 'run'} · Esc back")
        self._items = items
        self._present = present
        self._show_highlighted = show
        self._query.placeholder = f"Search {title.lower()}"
        self._details.display = False
        if present:
            self._dialog.show_title(title, "● in use")

    def on_mount(self) -> None:
        self._show()

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
            lead = lead_of(is_focused, "●" * (name == self._present), "$text-primary")
            text, note = self._items[name]
            title = Content.styled(text, "bold" if is_focused else "")
            beside = 0 if is_narrow(width + 2) or not note else _BESIDE
            room = width - lead[1] - beside - 1
            return columns(
                lead, (title, room), (Content(""), 1), (Content.styled(note, MUTED), beside)
            )

        return Row(name, render)

    @on(OptionList.OptionHighlighted)
    def _try(self) -> None:
        if self._show_highlighted is not None and self._rows.focused_id is not None:
            self._show_highlighted(self._rows.focused_id)

    @on(OptionList.OptionSelected)
    def action_pick(self) -> None:
        if self._rows.focused_id is not None:
            self.dismiss(self._rows.focused_id)

    def action_leave(self) -> None:
        if self._show_highlighted is not None:
            self._show_highlighted(self._present)
        self.dismiss(None)


_BESIDE = 32
