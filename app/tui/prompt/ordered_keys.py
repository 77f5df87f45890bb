"""Editing keys in the order they were typed.

Textual lets a binding's key travel up to the app before it acts. Letters that came right after it,
from quick fingers or over a slow line, would be there before it.
"""

from collections.abc import Sequence
from typing import Any

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from app.tui.prompt.text_fields import StandIns


async def act_on_own_key(
    widget: Widget, bindings: Sequence[BindingType], event: events.Key
) -> None:
    """Run a text field's own binding of a key, if it has one, where letters are taken in."""
    actions = {one.key: one.action for one in Binding.make_bindings(bindings)}
    action = actions.get(event.key)
    if action is not None and await widget.app.run_action(action, widget):
        event.stop()
        event.prevent_default()


class OrderedInput(Input):
    """A line of text, shown printable."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, highlighter=StandIns(), **options)

    async def _on_key(self, event: events.Key) -> None:
        await act_on_own_key(self, Input.BINDINGS, event)
