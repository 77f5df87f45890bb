"""An answer in progress on the screen."""

import time

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Collapsible, Static

from app.chat.thinking import split
from app.printable import printable
from app.tui.conversation.growing_markdown import GrowingMarkdown
from app.tui.conversation.message_view import MessageView

_CPU_SHARE = 0.05
"""Largest share of one core for painting an answer; the model needs the rest."""

_MIN_PAUSE_SECONDS = 0.08
_MAX_PAUSE_SECONDS = 0.6


class GrowingMessage(MessageView):
    """An answer in progress: its text is appended, and painted no more often than is cheap."""

    def __init__(self, text: str = "") -> None:
        super().__init__("assistant", text)
        self._shown = len(split(text).answer)
        self._shown_at = 0.0
        self._cpu_at_show = 0.0
        """CPU seconds of this thread when the message was last painted."""

    def _make_answer(self, text: str) -> Widget:
        return GrowingMarkdown(text)

    async def grow(self, text: str, *, is_last: bool = False) -> None:
        """Append text; it is painted now if that is due or it is the last."""
        self.text += text
        if not is_last and not self._is_due():
            return
        parts = split(self.text)
        if parts.thinking or parts.is_thinking:
            self._show_thinking(parts.thinking, parts.is_thinking)
        new = parts.answer[self._shown :]
        if not new:
            return
        self._shown = len(parts.answer)
        self._shown_at, self._cpu_at_show = time.monotonic(), time.thread_time()
        await self.query_one(GrowingMarkdown).append(new)

    def _is_due(self) -> bool:
        pause = time.monotonic() - self._shown_at
        cpu = time.thread_time() - self._cpu_at_show
        return pause >= _MIN_PAUSE_SECONDS and (
            cpu <= _CPU_SHARE * pause or pause >= _MAX_PAUSE_SECONDS
        )

    def _show_thinking(self, thinking: str, is_thinking: bool) -> None:
        collapsible = self.query_one(Collapsible)
        collapsible.display = True
        collapsible.title = "Thinking…" if is_thinking else "Thinking"
        if not collapsible.collapsed or not is_thinking:
            self.query_one(".thoughts", Static).update(Content(printable(thinking)))

    async def settle(self) -> None:
        """Render a finished answer as a whole: links defined below their use resolve only then."""
        if "]: " in self.text:
            await self.query_one(GrowingMarkdown).show(split(self.text).answer)
