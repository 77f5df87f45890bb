"""The text of an answer, saved or growing."""

import time
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Collapsible, Static

from app.engine.asking.answer import Piece
from app.printable import printable
from app.tui.answer_text.drafted_runs import Coloured, DraftedRuns
from app.tui.answer_text.growing_markdown import GrowingMarkdown
from app.tui.answer_text.laid_out_once import LaidOutOnce
from app.tui.answer_text.pacing import Pacing
from app.tui.store import Store
from app.tui.typed_app import typed_app
from backends.chat.thinking import split

_FADE_SECONDS = 0.5
"""Between two looks at the colours of a finished answer."""

_NO_HUES = Coloured(())


class AnswerText(LaidOutOnce, Vertical):
    """An answer's thinking, folded, and its Markdown; text that a drafter supplied is coloured.

    text: what is known already: a saved answer, or the beginning of one that is continued.
    """

    app = typed_app
    DEFAULT_CSS: ClassVar[str] = """
    AnswerText { height: auto; }
    AnswerText Collapsible { margin: 0; padding: 0; border: none; background: transparent; }
    """

    def __init__(self, store: Store, text: str = "") -> None:
        super().__init__()
        self.text = text
        """The whole text, with thinking, as the model wrote it."""
        self._store = store
        self._markdown = GrowingMarkdown(split(text).answer)
        self._shown = len(text)
        """How much of the text, thinking included, is on the screen."""
        self._begin = len(text) - len(split(text).answer)
        """Where the answer begins in the text, after any thinking."""
        self._new: list[Piece] = []
        self._drafted = DraftedRuns()
        self._is_growing = False
        self._pacing = Pacing()

    def compose(self) -> ComposeResult:
        parts = split(self.text)
        thoughts = Static(Content(printable(parts.thinking)), classes="thoughts")
        collapsible = Collapsible(thoughts, title="Thinking", collapsed=True)
        collapsible.display = bool(parts.thinking)
        yield collapsible
        yield self._markdown

    def on_mount(self) -> None:
        self.watch(self._store, "keeps_colours", self._fade, init=False)

    async def grow(self, pieces: Sequence[Piece] = (), *, is_last: bool = False) -> None:
        """Append pieces; they are painted now if that is due or they are the last.

        Call it at each tick of an answer, without pieces too: colours age only here.
        """
        self._is_growing = True
        self._new += pieces
        self.text += "".join(piece.text for piece in pieces)
        if self.is_attached and (is_last or self._pacing.is_due):
            self._pacing.begin()
            await self._paint()

    async def settle(self) -> None:
        """Complete a finished answer; its colours fade within two seconds."""
        self._is_growing = False
        if not self.is_attached:
            return
        await self._paint()
        if "]: " in self.text:  # links that are defined below their use resolve only now
            await self._markdown.show(split(self.text).answer)
        await self._markdown.settle()
        self._fade()

    async def _paint(self) -> None:
        """Bring the screen up to date."""
        since = 0
        if self._new:
            self._drafted.add(self._new, self._shown, time.monotonic())
            self._shown = len(self.text)
            self._new.clear()
            since = await self._show_text()
        self._colour(since)

    async def _show_text(self) -> int:
        """Show what is new; returns where in the answer the screen has changed."""
        parts = split(self.text)
        if parts.thinking or parts.is_thinking:
            self._show_thinking(parts.thinking, parts.is_thinking)
        begin, self._begin = self._begin, len(self.text) - len(parts.answer)
        if begin != self._begin and self._markdown.length:  # it was thinking, as its end tells
            await self._markdown.show(parts.answer)
        elif len(parts.answer) > self._markdown.length:
            await self._markdown.append(parts.answer[self._markdown.length :])
        return self._markdown.grown_from

    # Colours

    @property
    def _ages(self) -> bool:
        """Whether colours fade with time."""
        return not self._store.keeps_colours and self.app.animation_level != "none"

    def _colour(self, since: int) -> None:
        """Colour the answer; colours that do not age are known up to a position."""
        if self._ages:
            since, coloured = 0, self._drafted.fresh(time.monotonic())
        elif self._store.keeps_colours or self._is_growing:
            coloured = self._drafted.all(self._begin + since)
        else:
            since, coloured = 0, _NO_HUES
        self._markdown.lay(coloured, self._begin, has_cursor=self._is_growing, since=since)

    def _fade(self) -> None:
        """Colour all of the answer, and age the colours of a finished one until it has none."""
        self._colour(since=0)
        if self._ages and self._markdown.is_coloured and not self._is_growing:
            self.set_timer(_FADE_SECONDS, self._fade)

    def _show_thinking(self, thinking: str, is_thinking: bool) -> None:
        collapsible = self.query_one(Collapsible)
        collapsible.display = True
        collapsible.title = "Thinking…" if is_thinking else "Thinking"
        if not collapsible.collapsed or not is_thinking:
            self.query_one(".thoughts", Static).update(Content(printable(thinking)))
