"""One message of a chat on the screen."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Collapsible, Markdown, Static
from textual.widgets.markdown import MarkdownFence

from app.chat.thinking import split
from app.engine.answer import Piece
from app.printable import printable
from app.tui.conversation import provenance
from app.tui.conversation.compact_markdown import CompactMarkdown
from app.tui.terminal.clipboard import copy
from app.tui.typed_app import typed_app


class MessageView(Vertical):
    """A question or an answer; below an answer a line with its figures, the ending."""

    app = typed_app
    DEFAULT_CSS: ClassVar[str] = """
    MessageView { height: auto; max-width: 120; margin: 0 1 1 1; padding: 0 1; }
    MessageView.user { border-left: thick $primary; background: $boost; }
    MessageView.assistant { border-left: thick $surface-lighten-2; }
    MessageView.-outside { opacity: 60%; }
    MessageView > .ending { color: $text-muted; height: auto; }
    MessageView > .ending.-empty { display: none; }
    MessageView > .ending:hover { text-style: reverse; }
    MessageView Markdown { margin: 0; padding: 0; }
    MessageView Collapsible { margin: 0; padding: 0; border: none; background: transparent; }
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
            yield self._make_answer(parts.answer)
        yield Static(Content(self.ending), classes="ending" if self.ending else "ending -empty")

    def _make_answer(self, text: str) -> Widget:
        return CompactMarkdown(text, classes="answer")

    def show_ending(self, ending: str) -> None:
        """Show how the message ended, and its figures."""
        self.ending = ending
        line = self.query_one(".ending", Static)
        line.update(Content(ending))
        line.set_class(not ending, "-empty")

    async def toggle_origins(self, pieces: Sequence[Piece]) -> None:
        """Show the answer coloured by the origin of its tokens, or as before."""
        answer = self.query_one(".answer")
        origins = self.query("#origins")
        answer.display = bool(origins)
        if origins:
            await origins.remove()
        else:
            await self.mount(Static(provenance.coloured(pieces), id="origins"), after=answer)

    async def on_click(self, event: events.Click) -> None:
        """Copy the clicked code block, or the whole answer if its ending was clicked."""
        clicked = event.widget
        if clicked is None or self.screen.get_selected_text():
            return
        for widget in clicked.ancestors_with_self:
            if isinstance(widget, MarkdownFence):
                self.notify(copy(self.app, widget.code, "the code block"))
                return
        if clicked.has_class("ending"):
            self.notify(copy(self.app, self.text, "the answer"))

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Copy the address instead of opening it: the model may have made it up."""
        event.stop()
        self.notify(copy(self.app, event.href, f"the address {event.href}"))
