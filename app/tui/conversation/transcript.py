"""The scrolling list of a chat's messages; older ones are mounted on demand."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from app.tui.conversation.message_view import MessageView

PAGE = 20
"""Messages that are mounted at a time: each Markdown message is some 20 widgets."""


class Transcript(VerticalScroll):
    """Messages of a chat; follows the end until the user scrolls up."""

    DEFAULT_CSS: ClassVar[str] = """
    Transcript { height: 1fr; padding: 1 0 0 0; scrollbar-size-vertical: 1; }
    Transcript > #earlier { width: 1fr; margin: 0 2 1 2; }
    Transcript > #window { height: auto; color: $text-warning; padding: 0 2 1 2; }
    Transcript > #hint { color: $text-muted; padding: 1 2; height: auto; }
    Transcript > .fault { color: $text-error; padding: 0 2 1 2; height: auto; }
    """
    can_focus = True

    def __init__(self) -> None:
        super().__init__()
        self._unmounted: list[MessageView] = []
        """Older messages, which come before those mounted."""
        self._outside = 0
        """How many messages, from the first, are outside the model's context."""

    def on_mount(self) -> None:
        self.anchor()

    @property
    def messages(self) -> list[MessageView]:
        """The mounted messages, oldest first."""
        return list(self.query(MessageView))

    async def show(self, messages: Sequence[MessageView]) -> None:
        """Replace all messages; only the last ones are mounted."""
        await self.remove_children()
        self._outside = 0
        self._unmounted = list(messages[:-PAGE])
        await self.mount_all(messages[-PAGE:])
        await self._update_earlier_button()
        self.anchor()

    async def add(self, message: MessageView) -> None:
        """Append a message; the oldest ones are unmounted if there are too many."""
        if not self.is_attached:  # the app is quitting
            return
        mounted = self.messages
        surplus = mounted[: max(0, len(mounted) - 3 * PAGE)]
        for old in surplus:
            self._unmounted.append(MessageView(old.role, old.text, old.ending))
            await old.remove()
        await self.mount(message)
        if surplus:
            await self._update_earlier_button()
            await self._update_window()

    async def remove_last(self, count: int) -> None:
        """Remove the last messages."""
        mounted = self.messages
        if count and mounted:
            for message in mounted[max(0, len(mounted) - count) :]:
                await message.remove()
            self._outside = 0
            await self._update_window()

    async def mark_window(self, inside: int) -> None:
        """Mark the messages outside the model's context, all but the last ones."""
        self._outside = len(self._unmounted) + len(self.messages) - inside
        await self._update_window()

    async def _update_window(self) -> None:
        await self.query("#window").remove()
        mounted = self.messages
        outside = max(0, self._outside - len(self._unmounted))
        for index, message in enumerate(mounted):
            message.set_class(index < outside, "-outside")
        if self._outside > 0 and outside < len(mounted):
            text = "The context is full: the model no longer sees what is above this line."
            await self.mount(Static(text, id="window"), before=mounted[outside])

    def show_hint(self, text: str) -> None:
        """Show a hint, unless one is shown already."""
        if not self.query("#hint"):
            self.mount(Static(Content(text), id="hint"))

    async def show_error(self, text: str) -> None:
        """Show an error below the messages."""
        await self.mount(Static(Content(text), classes="fault"))

    async def clear_notices(self) -> None:
        """Remove hint and errors."""
        await self.query("#hint, .fault").remove()

    async def _update_earlier_button(self) -> None:
        button = self.query("#earlier")
        if not self._unmounted:
            await button.remove()
        elif not button:
            label = "Show earlier messages"
            await self.mount(Button(label, id="earlier", compact=True), before=0)

    @on(Button.Pressed, "#earlier")
    async def _earlier_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        await self.show_earlier()

    async def show_earlier(self) -> None:
        """Mount the next older messages without moving those in view."""
        older, self._unmounted = self._unmounted[-PAGE:], self._unmounted[:-PAGE]
        if not older:
            return
        first = next(iter(self.query(MessageView)), None)
        from_end = self.virtual_size.height - self.scroll_offset.y
        await self.mount_all(older, before=first)
        await self._update_earlier_button()
        await self._update_window()
        self.call_after_refresh(
            lambda: self.scroll_to(y=self.virtual_size.height - from_end, animate=False)
        )
