"""One message of the conversation on the screen."""

import time
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Collapsible, Markdown, Static
from textual.widgets.markdown import MarkdownFence

from app.printable import printable
from app.thinking import split
from app.tui.conversation.compact_markdown import CompactMarkdown
from app.tui.conversation.growing_markdown import GrowingMarkdown
from app.tui.terminal.clipboard import copy

_SHARE = 0.05
"""Of the processor, for all that the screen does while it shows: the model needs the rest."""

_SHORTEST_REST = 0.08
_LONGEST_REST = 0.6


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
            yield Static(Content(printable(self.text)), classes="text")
        else:
            parts = split(self.text)
            thoughts = Static(Content(printable(parts.thinking)), classes="thoughts")
            collapsible = Collapsible(thoughts, title="Thinking", collapsed=True)
            collapsible.display = bool(parts.thinking)
            yield collapsible
            yield self._answer(parts.answer)
        yield Static(Content(self.ending), classes="ending" if self.ending else "ending -empty")

    def _answer(self, text: str) -> Widget:
        return CompactMarkdown(text, classes="answer")

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
        self._shown_at = 0.0
        self._spent = 0.0
        """Seconds of processor the screen had taken when it last showed something."""

    def _answer(self, text: str) -> Widget:
        return GrowingMarkdown(text)

    async def grow(self, text: str, *, is_last: bool = False) -> None:
        """Take in text that came; show it now if it is due, or the last."""
        self.text += text
        if not is_last and not self._is_due():
            return
        parts = split(self.text)
        if parts.thinking or parts.is_thinking:
            self._show_thinking(parts.thinking, parts.is_thinking)
        fresh = parts.answer[self._shown :]
        if not fresh:
            return
        self._shown = len(parts.answer)
        self._shown_at, self._spent = time.monotonic(), time.thread_time()
        await self.query_one(GrowingMarkdown).append(fresh)

    def _is_due(self) -> bool:
        """Whether the machine can afford to show more."""
        rested, spent = time.monotonic() - self._shown_at, time.thread_time() - self._spent
        return rested >= _SHORTEST_REST and (spent <= _SHARE * rested or rested >= _LONGEST_REST)

    def _show_thinking(self, thinking: str, is_thinking: bool) -> None:
        collapsible = self.query_one(Collapsible)
        collapsible.display = True
        collapsible.title = "Thinking…" if is_thinking else "Thinking"
        if not collapsible.collapsed or not is_thinking:
            self.query_one(".thoughts", Static).update(Content(printable(thinking)))

    async def settle(self) -> None:
        """Render once more as a whole: links defined below their use resolve only then."""
        if "]: " in self.text:
            await self.query_one(GrowingMarkdown).show(split(self.text).answer)
