"""Text fields that run editing keys in the order typed and display control characters safely.

The cursor stands between characters as a person counts them (Unicode's grapheme clusters): one key
passes or deletes an emoji, a flag, or a letter with its marks.

Textual lets a key with a binding bubble up to the app before it acts. Letters typed right after it,
by quick fingers or over a slow line, would be inserted first.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from rich.highlighter import Highlighter
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.document._document import Location, Selection
from textual.geometry import Offset
from textual.widgets import Input, TextArea
from textual.widgets.input import Selection as Selected

from app.printable import one_line, printable
from app.tui.widgets import typed_app


def _actions_of(bindings: Sequence[BindingType]) -> Mapping[str, str]:
    return {binding.key: binding.action for binding in Binding.make_bindings(bindings)}


TEXT_AREA_ACTIONS = _actions_of(TextArea.BINDINGS)
"""Textual's own actions of a text area, by key."""

_INPUT_ACTIONS = _actions_of(Input.BINDINGS)

_LONGEST = 256
"""Code points in which a character is found; beyond it, one may be taken for two."""


def character_at(line: str, place: int) -> tuple[int, int]:
    """Where the character around a place begins and ends; twice the place between two."""
    if line[place - 1 : place + 1].isascii():
        return place, place
    import regex

    for match in regex.finditer(r"\X", line, pos=max(0, place - _LONGEST)):
        if match.end() >= place:
            return match.span() if match.start() < place < match.end() else (place, place)
    return place, place


def typed(event: events.Key) -> str:
    """The text that a key types, "" for none.

    Textual takes spaces of other scripts, joiners and marks of direction for keys without text.
    """
    text = event.character or ""
    return "" if any(unicodedata.category(one) in ("Cc", "Cs") for one in text) else text


class _PrintableHighlighter(Highlighter):
    def highlight(self, text: Text) -> None:
        text.plain = one_line(text.plain)


class PrintableInput(Input):
    """A single-line field; control characters are kept in its value and displayed as symbols."""

    app = typed_app

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, highlighter=_PrintableHighlighter(), **options)

    async def _on_key(self, event: events.Key) -> None:
        await run_own_binding(self, _INPUT_ACTIONS, event)

    def validate_selection(self, selection: Selected) -> Selected:
        """Move on to the end of a character, or back to its beginning."""
        moved = zip(super().validate_selection(selection), self.selection, strict=True)
        return Selected(*(character_at(self.value, to)[to > place] for to, place in moved))

    def replace(self, text: str, start: int, end: int) -> None:
        start, end = sorted((start, end))
        first, last = character_at(self.value, start)[0], character_at(self.value, end)[1]
        super().replace(text, first, last)


class PrintableTextArea(TextArea):
    """A multi-line field; control characters are kept in its text and displayed as symbols."""

    app = typed_app

    async def _on_key(self, event: events.Key) -> None:
        await run_own_binding(self, TEXT_AREA_ACTIONS, event)

    def get_line(self, line_index: int) -> Text:
        return Text(printable(self.document.get_line(line_index)), end="", no_wrap=True)

    def unit_at(self, location: Location) -> tuple[int, int]:
        """Columns of what is one to the cursor around a location; twice its own between two."""
        row, column = location
        if row >= self.document.line_count:
            return column, column
        return character_at(self.document.get_line(row), column)

    def before_unit(self, location: Location) -> Location:
        return location[0], self.unit_at(location)[0]

    def behind_unit(self, location: Location) -> Location:
        return location[0], self.unit_at(location)[1]

    def validate_selection(self, selection: Selection) -> Selection:
        return Selection(self._nearest(selection.start), self._nearest(selection.end))

    def _nearest(self, location: Location) -> Location:
        row, column = location
        start, end = self.unit_at(location)
        return row, start if column - start < end - column else end

    def get_cursor_left_location(self) -> Location:
        return self.before_unit(super().get_cursor_left_location())

    def get_cursor_right_location(self) -> Location:
        return self.behind_unit(super().get_cursor_right_location())

    def get_cursor_word_left_location(self) -> Location:
        return self.before_unit(super().get_cursor_word_left_location())

    def get_cursor_word_right_location(self) -> Location:
        return self.behind_unit(super().get_cursor_word_right_location())

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Scroll to the cursor, unless an undo has just removed the line that it is on.

        Textual 8.2.8 then calls this before it has moved the cursor, and would raise ValueError.
        """
        if self.cursor_location[0] >= self.wrapped_document.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)


async def run_own_binding(
    field: PrintableInput | PrintableTextArea, own: Mapping[str, str], event: events.Key
) -> None:
    """Run a field's own binding of a key at once, instead of after the key has bubbled up.

    Also types what Textual would not. own: actions of the field by key.
    """
    action = own.get(event.key)
    if action is not None:
        if not await field.app.run_action(action, field):
            return
    elif event.is_printable or not (text := typed(event)):
        return  # left to Textual
    elif isinstance(field, PrintableInput):
        field.replace(text, *field.selection)
    else:
        field.replace(text, *field.selection, maintain_selection_offset=False)
    event.stop()
    event.prevent_default()
