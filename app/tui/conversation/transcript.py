"""The conversation on the screen: as many messages as are looked at, the rest on demand."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.containers import VerticalScroll
from textual.widgets import Button, Static

from app.tui.conversation.message import Message

PAGE = 20
"""Messages that are put on the screen at a time: each Markdown message is some 20 widgets."""


class Transcript(VerticalScroll):
    """Sticks to the end until somebody scrolls up; older messages come when asked for."""

    DEFAULT_CSS: ClassVar[str] = """
    Transcript { height: 1fr; padding: 1 0 0 0; scrollbar-size-vertical: 1; }
    Transcript > #earlier { width: 1fr; margin: 0 2 1 2; }
    Transcript > #window { height: auto; color: $text-warning; padding: 0 2 1 2; }
    """
    can_focus = True

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Message] = []
        self._outside = 0
        """How many of all messages, from the first, the model no longer sees."""

    def on_mount(self) -> None:
        self.anchor()

    async def show(self, messages: Sequence[Message]) -> None:
        """Replace what is shown; only the last messages are mounted."""
        await self.remove_children()
        self._outside = 0
        self._waiting = list(messages[:-PAGE])
        await self.mount_all(messages[-PAGE:])
        await self._offer_earlier()
        self.anchor()

    async def add(self, message: Message) -> None:
        """Put a message at the end; the oldest ones shown make room."""
        if not self.is_attached:  # the app is being left
            return
        shown = self.messages
        too_many = shown[: max(0, len(shown) - 3 * PAGE)]
        for old in too_many:
            self._waiting.append(Message(old.role, old.text, old.ending))
            await old.remove()
        await self.mount(message)
        if too_many:
            await self._offer_earlier()
            await self._draw_window()

    async def remove_from(self, message: Message) -> None:
        """Take a message and all after it away."""
        shown = self.messages
        for one in shown[shown.index(message) :]:
            await one.remove()
        self._outside = 0
        await self._draw_window()

    async def mark_window(self, seen: int) -> None:
        """Show that the model sees only the last messages."""
        self._outside = len(self._waiting) + len(self.messages) - seen
        await self._draw_window()

    async def _draw_window(self) -> None:
        await self.query("#window").remove()
        outside = max(0, self._outside - len(self._waiting))
        shown = self.messages
        for place, message in enumerate(shown):
            message.set_class(place < outside, "-outside")
        if self._outside > 0 and outside < len(shown):
            text = "The context is full: the model no longer sees what is above this line."
            await self.mount(Static(text, id="window"), before=shown[outside])

    @property
    def messages(self) -> list[Message]:
        """What is mounted, oldest first."""
        return list(self.query(Message))

    async def _offer_earlier(self) -> None:
        found = self.query("#earlier")
        if not self._waiting:
            await found.remove()
        elif not found:
            label = "Show earlier messages"
            await self.mount(Button(label, id="earlier", compact=True), before=0)

    @on(Button.Pressed, "#earlier")
    async def _show_earlier(self, event: Button.Pressed) -> None:
        event.stop()
        await self.show_earlier()

    async def show_earlier(self) -> None:
        """Mount the next older messages, leaving what is looked at where it is."""
        older, self._waiting = self._waiting[-PAGE:], self._waiting[:-PAGE]
        if not older:
            return
        first = next(iter(self.query(Message)), None)
        before = self.virtual_size.height - self.scroll_offset.y
        await self.mount_all(older, before=first)
        await self._offer_earlier()
        await self._draw_window()
        self.call_after_refresh(
            lambda: self.scroll_to(y=self.virtual_size.height - before, animate=False)
        )
