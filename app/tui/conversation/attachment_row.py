"""A file or a paste that belongs to a question, folded to one line."""

import asyncio
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.chat.attachment import Attachment, AttachmentKind
from app.engine.token_counts import CountTokens
from app.printable import one_line, printable
from app.tui.wording import SEPARATOR, tokens_in_words


class AttachmentRow(Vertical, can_focus=True):
    """Name and length of an attachment; Enter or a click shows its text."""

    BINDINGS: ClassVar = [Binding("enter", "unfold", "unfold")]
    DEFAULT_CSS: ClassVar[str] = """
    AttachmentRow { height: auto; color: $text-muted; }
    AttachmentRow:focus > .name { color: $primary; background: $primary 20%; }
    AttachmentRow > Static { height: auto; }
    AttachmentRow > .name { text-wrap: nowrap; text-overflow: ellipsis; }
    AttachmentRow > .contents { padding: 0 0 0 2; }
    """

    def __init__(self, attachment: Attachment, count_tokens: CountTokens) -> None:
        super().__init__()
        self._attachment = attachment
        self._count_tokens = count_tokens
        self._tokens = ""
        self._is_unfolded = False

    def compose(self) -> ComposeResult:
        yield Static(self._head(), classes="name")

    def on_mount(self) -> None:
        self.run_worker(self._count(), exit_on_error=False)

    async def _count(self) -> None:
        future = asyncio.wrap_future(self._count_tokens(self._attachment.text))
        tokens = await asyncio.shield(future)  # the engine still answers a cancelled row
        self._tokens = f"{SEPARATOR}{tokens_in_words(tokens)}"
        self.query_one(".name", Static).update(self._head())

    def _head(self) -> Content:
        mark = "▾" if self._is_unfolded else "▸"
        name = self._attachment.name
        if self._attachment.kind is AttachmentKind.PASTE:
            name = name.strip("[]")
        return Content(f"{mark} {one_line(name)}{self._tokens}")

    async def action_unfold(self) -> None:
        """Show the text below the name, or hide it."""
        self._is_unfolded = not self._is_unfolded
        self.query_one(".name", Static).update(self._head())
        if self._is_unfolded:
            text = Content(printable(self._attachment.text))
            await self.mount(Static(text, classes="contents"))
        else:
            await self.query(".contents").remove()

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        if not self.screen.get_selected_text():
            await self.action_unfold()
