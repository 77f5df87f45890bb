"""Text fields that run editing keys in the order typed and display control characters safely.

Textual lets a key with a binding bubble up to the app before it acts. Letters typed right after it,
by quick fingers or over a slow line, would be inserted first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.highlighter import Highlighter
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.widgets import Input, TextArea

from app.printable import one_line, printable
from app.tui.typed_app import typed_app


def _actions_of(bindings: Sequence[BindingType]) -> Mapping[str, str]:
    return {binding.key: binding.action for binding in Binding.make_bindings(bindings)}


TEXT_AREA_ACTIONS = _actions_of(TextArea.BINDINGS)
"""Textual's own actions of a text area, by key."""

_INPUT_ACTIONS = _actions_of(Input.BINDINGS)


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


class PrintableTextArea(TextArea):
    """A multi-line field; control characters are kept in its text and displayed as symbols."""

    app = typed_app

    def get_line(self, line_index: int) -> Text:
        return Text(printable(self.document.get_line(line_index)), end="", no_wrap=True)

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

    own: actions of the field by key.
    """
    action = own.get(event.key)
    if action is not None and await field.app.run_action(action, field):
        event.stop()
        event.prevent_default()
