"""Questions that wait for the answer in progress, or for a model."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from app.dialogue.queued import Queued
from app.printable import one_line
from app.tui.typed_app import typed_app

WAITING_FOR_MODEL = "waiting for a model"


class QueueRow(Horizontal):
    """A question in one line, and what it waits for."""

    DEFAULT_CSS: ClassVar[str] = """
    QueueRow {
        height: auto; max-width: 120; margin: 0 0 1 1; background: $boost;
    }
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


class QueueView(Vertical):
    """The questions of the queue, first to be sent first."""

    app = typed_app
    DEFAULT_CSS: ClassVar[str] = "QueueView { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[list[Queued], bool] = ([], False)

    async def show(self, queue: Sequence[Queued], *, needs_model: bool) -> None:
        """Show the queue; needs_model: its first question waits for a model."""
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
