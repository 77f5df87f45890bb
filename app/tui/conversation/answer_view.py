"""An answer on the screen."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownFence

from app.dialogue.turn import Turn
from app.engine.reply import Piece
from app.printable import printable
from app.tui.answer_text.answer_text import AnswerText
from app.tui.conversation.folded_line import FoldedLine
from app.tui.conversation.message_view import MessageView
from app.tui.store import Store
from app.tui.terminal.clipboard import copy
from app.tui.typed_app import typed_app


class AnswerView(MessageView):
    """The text of an answer, and below it a line with its figures or how it ended."""

    app = typed_app
    BINDINGS: ClassVar = [Binding("enter", "copy", "copy")]
    DEFAULT_CSS: ClassVar[str] = """
    AnswerView { padding: 0 0 0 2; }
    AnswerView:focus { border-left: outer $primary; padding: 0 0 0 1; }
    AnswerView Horizontal { align-horizontal: right; }
    AnswerView .line { width: 1fr; height: auto; color: $text-muted; }
    AnswerView .line:hover { text-style: underline; }
    AnswerView Markdown { padding: 0; margin: 0; }
    AnswerView.-no-line .line { display: none; }
    AnswerView.-no-line.-only { margin: 0 0 0 1; }
    """

    def __init__(self, turn: Turn, store: Store) -> None:
        super().__init__(turn)
        self._store = store
        self._text = AnswerText(store, turn.text)
        self._line = Static(classes="line")
        self._shown_line: str | None = None
        self._is_growing = False

    def compose(self) -> ComposeResult:
        yield self._text
        with Horizontal():
            yield self._line
            yield self._label

    async def grow(self, pieces: Sequence[Piece] = (), *, is_last: bool = False) -> None:
        """Show what was added to the turn; call it at each tick of a growing answer.

        pieces: the newest text, with its origin.
        """
        known = sum(len(piece.text) for piece in pieces)
        if missed := self.turn.text[len(self._text.text) : len(self.turn.text) - known]:
            pieces = [Piece(missed, ""), *pieces]  # it came while this widget was being mounted
        self._is_growing = not is_last
        await self._text.grow(pieces, is_last=is_last)
        if is_last:
            await self._text.settle()

    async def follow_turn(self) -> None:
        """Show the whole text of the turn, which another window may have added to."""
        shown, text = self._text.text, self.turn.text
        if self._is_growing and text.startswith(shown):
            await self.grow(is_last=True)
            return
        if text == shown:
            return
        if text.startswith(shown):
            await self._text.grow([Piece(text[len(shown) :], "")], is_last=True)
        else:
            replacement = AnswerText(self._store, text)
            await self.mount(replacement, before=self._text)
            await self._text.remove()
            self._text = replacement

    def show_line(self, line: str) -> None:
        """Show figures, or how the answer ended, below it; nothing if empty."""
        if line == self._shown_line:
            return
        self._shown_line = line
        self.set_class(not line, "-no-line")
        self._line.update(FoldedLine(printable(line)))

    def action_copy(self) -> None:
        """Copy the answer."""
        self.notify(copy(self.app, self.turn.text, "the answer"))

    async def on_click(self, event: events.Click) -> None:
        """Copy the clicked code block, or the whole answer if its line was clicked."""
        clicked = event.widget
        if clicked is None or self.screen.get_selected_text():
            return
        for widget in clicked.ancestors_with_self:
            if isinstance(widget, MarkdownFence):
                self.notify(copy(self.app, widget.code, "the code block"))
                return
        if clicked.has_class("line"):
            self.action_copy()

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Copy the address instead of opening it: the model may have made it up."""
        event.stop()
        self.notify(copy(self.app, event.href, f"the address {event.href}"))
