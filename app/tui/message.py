"""One message of the conversation on the screen."""

import math
import time
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Collapsible, Markdown, Static
from textual.widgets.markdown import MarkdownFence

from app.thinking import split
from app.tui.clipboard import copy

_IDLE_SHARE = 9.0
"""Seconds of rest for each second that showing took: the model needs the processor more."""

_SHORTEST_REST = 0.08


class Message(Vertical):
    """A message with its role, its text and a line of figures below."""

    DEFAULT_CSS: ClassVar[str] = """
    Message { height: auto; max-width: 120; margin: 0 1 1 1; padding: 0 1; }
    Message.user { border-left: thick $primary; background: $boost; }
    Message.assistant { border-left: thick $surface-lighten-2; }
    Message.-outside, Message.-returned { opacity: 60%; }
    Message > .ending { color: $text-muted; height: auto; }
    Message > .ending.-empty { display: none; }
    Message > .ending:hover { text-style: reverse; }
    Message Markdown { margin: 0; padding: 0; }
    Message Collapsible { margin: 0; padding: 0; border: none; background: transparent; }
    """

    def __init__(self, role: str, text: str = "", ending: str = "") -> None:
        super().__init__(classes=role)
        self.role = role
        self.text = text
        self.ending = ending

    def compose(self) -> ComposeResult:
        if self.role == "user":
            yield Static(Content(self.text), classes="text")
        else:
            parts = split(self.text)
            thoughts = Static(Content(parts.thinking), classes="thoughts")
            collapsible = Collapsible(thoughts, title="Thinking", collapsed=True)
            collapsible.display = bool(parts.thinking)
            yield collapsible
            yield Markdown(parts.answer, open_links=False)
        yield Static(Content(self.ending), classes="ending" if self.ending else "ending -empty")

    def show_ending(self, ending: str) -> None:
        """The line below: how the message ended, and its figures."""
        self.ending = ending
        line = self.query_one(".ending", Static)
        line.update(Content(ending))
        line.set_class(not ending, "-empty")

    async def on_click(self, event: events.Click) -> None:
        """A click on a code block copies it, one on the line below copies the answer."""
        clicked = event.widget
        if clicked is None or self.screen.get_selected_text():
            return
        fences = [one for one in clicked.ancestors_with_self if isinstance(one, MarkdownFence)]
        if fences:
            self.notify(copy(self.app, fences[0].code, "the code block"))
        elif clicked.has_class("ending"):
            self.notify(copy(self.app, self.text, "the answer"))

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Nothing is opened for a model's word: the address can be looked at first."""
        event.stop()
        self.notify(copy(self.app, event.href, f"the address {event.href}"))


class GrowingMessage(Message):
    """The answer at work: text comes in, and is shown no faster than the machine can afford."""

    def __init__(self, text: str = "") -> None:
        super().__init__("assistant", text)
        self._shown = len(split(text).answer)
        self._rest_until = 0.0

    async def grow(self, text: str, *, is_last: bool = False) -> None:
        """Take in text that came; show it now if it is due, or the last."""
        self.text += text
        now = time.monotonic()
        if now < self._rest_until and not is_last:
            return
        parts = split(self.text)
        if parts.thinking or parts.is_thinking:
            self._show_thinking(parts.thinking, parts.is_thinking)
        fresh = parts.answer[self._shown :]
        if not fresh:
            return
        self._shown = len(parts.answer)
        self._rest_until = math.inf
        await self.query_one(Markdown).append(fresh)
        self.call_after_refresh(self._rest_after, now)

    def _rest_after(self, began: float) -> None:
        """Laying out and painting count too."""
        now = time.monotonic()
        self._rest_until = now + max(_SHORTEST_REST, _IDLE_SHARE * (now - began))

    def _show_thinking(self, thinking: str, is_thinking: bool) -> None:
        collapsible = self.query_one(Collapsible)
        collapsible.display = True
        collapsible.title = "Thinking…" if is_thinking else "Thinking"
        if not collapsible.collapsed or not is_thinking:
            self.query_one(".thoughts", Static).update(Content(thinking))

    async def settle(self) -> None:
        """Render once more as a whole: links defined below their use resolve only then."""
        if "]: " in self.text:
            await self.query_one(Markdown).update(split(self.text).answer)
