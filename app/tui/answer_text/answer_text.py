"""The text of an answer, saved or growing."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Collapsible, Static

from app.chat.thinking import split
from app.engine.answer import Piece
from app.printable import printable
from app.tui.answer_text.growing_markdown import GrowingMarkdown
from app.tui.answer_text.pacing import Pacing
from app.tui.store import Store


class AnswerText(Vertical):
    """An answer's thinking, folded, and its Markdown; text that a drafter supplied is coloured.

    text: what is known already: a saved answer, or the beginning of one that is continued.
    """

    DEFAULT_CSS: ClassVar[str] = """
    AnswerText { height: auto; }
    AnswerText Collapsible { margin: 0; padding: 0; border: none; background: transparent; }
    """

    def __init__(self, store: Store, text: str = "") -> None:
        super().__init__()
        self.text = text
        """The whole text, with thinking, as the model wrote it."""
        self._store = store
        self._shown = len(split(text).answer)
        self._pacing = Pacing()

    def compose(self) -> ComposeResult:
        parts = split(self.text)
        thoughts = Static(Content(printable(parts.thinking)), classes="thoughts")
        collapsible = Collapsible(thoughts, title="Thinking", collapsed=True)
        collapsible.display = bool(parts.thinking)
        yield collapsible
        yield GrowingMarkdown(parts.answer)

    async def grow(self, pieces: Sequence[Piece] = (), *, is_last: bool = False) -> None:
        """Append pieces; they are painted now if that is due or they are the last.

        Call it at each tick of an answer, with no pieces too: colours age only here.
        """
        self.text += "".join(piece.text for piece in pieces)
        if not is_last and not self._pacing.is_due:
            return
        parts = split(self.text)
        if parts.thinking or parts.is_thinking:
            self._show_thinking(parts.thinking, parts.is_thinking)
        new = parts.answer[self._shown :]
        if not new:
            return
        self._pacing.begin()
        self._shown = len(parts.answer)
        await self.query_one(GrowingMarkdown).append(new)

    def _show_thinking(self, thinking: str, is_thinking: bool) -> None:
        collapsible = self.query_one(Collapsible)
        collapsible.display = True
        collapsible.title = "Thinking…" if is_thinking else "Thinking"
        if not collapsible.collapsed or not is_thinking:
            self.query_one(".thoughts", Static).update(Content(printable(thinking)))

    async def settle(self) -> None:
        """Complete a finished answer: links defined below their use resolve only now."""
        if "]: " in self.text:
            await self.query_one(GrowingMarkdown).show(split(self.text).answer)
