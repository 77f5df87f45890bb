"""What makes this chat differ from a new one: its instructions and settings."""

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.printable import one_line
from app.settings.catalogue import Value


class InstructionsLine(Static, can_focus=True):
    """One line at the top of a chat with instructions or settings of its own."""

    BINDINGS: ClassVar = [Binding("enter", "edit", "edit")]
    DEFAULT_CSS: ClassVar[str] = """
    InstructionsLine {
        height: 1; max-width: 121; margin: 0 0 1 3; color: $text-muted;
        text-wrap: nowrap; text-overflow: ellipsis; display: none;
    }
    InstructionsLine:focus { color: $primary; }
    """

    class EditWanted(Message):
        """The instructions or settings should be edited."""

    def show(self, system: str, own: Mapping[str, Value]) -> None:
        """Show instructions and settings; nothing where there are none."""
        settings = [f"{name.replace('_', ' ')} {_shown(value)}" for name, value in own.items()]
        parts = [f"instructions: {one_line(system)}"] if system else []
        self.update(Content(" · ".join([*parts, *map(one_line, settings)])))
        self.display = bool(system or own)

    def action_edit(self) -> None:
        """Ask to edit them."""
        self.post_message(self.EditWanted())

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_edit()


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
