"""What stands around the messages: instructions, errors and the queue."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import HorizontalGroup, VerticalGroup
from textual.content import Content
from textual.widgets import Static

from app.history.records import Queued
from app.printable import one_line, printable
from app.settings.answering import PRESET
from app.settings.catalogue import Value
from app.tui.widgets import Wanted, folded, typed_app

ERROR, WARNING = "✕", "▲"


class Card(VerticalGroup):
    """A mark, a sentence, and below it the remedy."""

    DEFAULT_CSS: ClassVar[str] = """
    Card { max-width: 121; margin: 0 2 1 1; }
    Card HorizontalGroup { color: $text-error; }
    Card.-warning HorizontalGroup { color: $text-warning; }
    Card .mark { width: 2; }
    Card .what { width: 1fr; }
    Card > .remedy { padding: 0 0 0 2; color: $text-muted; }
    """

    def __init__(self, text: str, remedy: str = "", *, mark: str = ERROR) -> None:
        super().__init__(classes="-warning" if mark == WARNING else None)
        self.text = text
        self._remedy = remedy
        self._mark = mark

    def compose(self) -> ComposeResult:
        with HorizontalGroup():
            yield Static(self._mark, classes="mark")
            yield Static(Content(printable(self.text)), classes="what")
        if self._remedy:
            yield Static(folded(printable(self._remedy)), classes="remedy")


class InstructionsLine(Static, can_focus=True):
    BINDINGS: ClassVar = [Binding("enter", "edit", "edit")]
    DEFAULT_CSS: ClassVar[str] = """
    InstructionsLine {
        height: 1; max-width: 121; margin: 0 2 1 3; color: $text-muted;
        text-wrap: nowrap; text-overflow: ellipsis; display: none;
    }
    InstructionsLine:focus { color: $text-primary; }
    """

    def show(self, system: str, own: Mapping[str, Value]) -> None:
        shown = {name: f"{name.replace('_', ' ')} {_shown(value)}" for name, value in own.items()}
        preset = shown.pop(PRESET, "")
        parts = [preset, f"instructions: {system}" if system else "", *shown.values()]
        self.update(Content(" · ".join(map(one_line, filter(None, parts)))))
        self.display = bool(system or own)

    def action_edit(self) -> None:
        self.post_message(Wanted("perform", "settings"))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_edit()


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


WAITING_FOR_MODEL = "waiting for a model"


class QueueRow(HorizontalGroup):
    DEFAULT_CSS: ClassVar[str] = """
    QueueRow { max-width: 120; margin: 0 2 1 1; background: $boost; }
    QueueRow > .text {
        width: 1fr; height: 1; padding: 0 0 0 1; border-left: outer $primary;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    QueueRow > .state { width: auto; height: 1; margin: 0 0 0 2; color: $text-muted; }
    """

    def __init__(self, text: str, state: str) -> None:
        super().__init__(classes="-waiting" if state == WAITING_FOR_MODEL else None)
        self._text = text
        self.state = state

    def compose(self) -> ComposeResult:
        yield Static(Content(one_line(self._text)), classes="text")
        yield Static(Content(self.state), classes="state")


class QueueView(VerticalGroup):
    app = typed_app

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[list[Queued], bool] = ([], False)

    async def show(self, queue: Sequence[Queued], *, needs_model: bool) -> None:
        wanted = (list(queue), needs_model)
        if wanted == self._shown:
            return
        self._shown = wanted
        with self.app.batch_update():
            await self.remove_children()
            await self.mount_all(
                QueueRow(
                    queued.text,
                    WAITING_FOR_MODEL if needs_model and number == 1 else f"queued · {number}",
                )
                for number, queued in enumerate(queue, 1)
            )
