"""The text of an answer, saved or growing."""

import re
import time
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Collapsible, Static

from app.engine.answer import Piece
from app.printable import STAND_INS, printable
from app.tui.chat.blocks import BULLET_LIST, ORDERED_LIST, CodeBlock
from app.tui.chat.colours import BlockHues, Coloured, DraftedRuns
from app.tui.chat.markdown import CompactMarkdown
from app.tui.store import Store
from app.tui.widgets import LaidOutOnce, typed_app
from backends.chat.reply_form import split

_CPU_SHARE = 0.035
"""Largest share of one core for painting an answer."""

_MIN_PAUSE_SECONDS = 0.08
_MAX_PAUSE_SECONDS = 0.6


class Pacing:
    """Tells when the next paint is due, from the processor time that the last one took."""

    def __init__(self) -> None:
        self._painted_at = 0.0
        self._cpu_at_paint = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to paint."""
        pause = time.monotonic() - self._painted_at
        cpu = time.thread_time() - self._cpu_at_paint
        return pause >= _MIN_PAUSE_SECONDS and (
            cpu <= _CPU_SHARE * pause or pause >= _MAX_PAUSE_SECONDS
        )

    def begin(self) -> None:
        """Note that a paint begins."""
        self._painted_at, self._cpu_at_paint = time.monotonic(), time.thread_time()


_SECTION_LINES = 24
"""Minimum length of a section."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)]) ")
_BLOCK = re.compile(r"[^\W\d_]|[#|`]")


class SectionCuts:
    """Reads Markdown as it comes and finds where sections may begin.

    These are list items at the left edge, and what follows an empty line, outside code.
    """

    def __init__(self) -> None:
        self._line = ""
        """The line that is not complete yet."""
        self._lines = 0
        self._fence = ""
        self._is_after_blank = False

    @property
    def is_at_line_start(self) -> bool:
        """Whether what follows begins a line."""
        return not self._line

    def split(self, text: str) -> list[str]:
        """Split text that follows into the section's continuation and new sections."""
        parts = [""]
        for line in text.splitlines(keepends=True):
            if not self._line and self._may_begin(line):
                parts.append("")
                self._lines = 0
            parts[-1] += line
            self._line += line
            if line.endswith("\n"):
                self._complete()
        return parts

    def _may_begin(self, line: str) -> bool:
        if self._fence or self._lines < _SECTION_LINES:
            return False
        return bool(_ITEM.match(line) or (self._is_after_blank and _BLOCK.match(line)))

    def _complete(self) -> None:
        """Follow a whole line."""
        line, self._line = self._line, ""
        self._lines += 1
        self._is_after_blank = not line.strip()
        mark = _FENCE.match(line)
        if self._fence:
            if mark and line.strip().startswith(self._fence):
                self._fence = "" if not line.strip(" \n" + self._fence[0]) else self._fence
        elif mark:
            self._fence = mark[1]


def list_mark(section: str) -> str:
    """The type of list, as a token has it, that a section begins with, else empty."""
    if not _ITEM.match(section):
        return ""
    return ORDERED_LIST if section[0].isdigit() else BULLET_LIST


_SHOWN = {**STAND_INS, ord("\r"): " "}
"""Replacements of control characters; none changes the length of the text."""

_NUMBER = re.compile(r"[ \t]*\d{1,9}\Z")
"""A line that may become a list item."""


class GrowingMarkdown(LaidOutOnce, Vertical):
    """Markdown in sections, of which only the last grows.

    A list is parsed from its beginning whenever it grows, so a long one is split into several.
    """

    app = typed_app
    DEFAULT_CSS: ClassVar[str] = "GrowingMarkdown { height: auto; }"

    def __init__(self, text: str = "") -> None:
        text = text.translate(_SHOWN)
        self._last = CompactMarkdown(text)
        self._length = len(text)
        self._held = ""
        """What is not shown yet: as a paragraph it would end the list that it belongs to."""
        self._cuts = SectionCuts()
        self._cuts.split(text)
        self._hues = [BlockHues(self._last, 0)]
        self._grown_from = 0
        """The first section that the last append changed."""
        super().__init__(self._last, classes="answer")

    @property
    def length(self) -> int:
        """Length of the whole text."""
        return self._length + len(self._held)

    @property
    def grown_from(self) -> int:
        """Where in the text the first section begins that the last append changed."""
        return self._hues[self._grown_from].offset

    async def append(self, text: str) -> None:
        """Append text."""
        text = self._held + text.translate(_SHOWN)
        begin = text.rfind("\n") + 1
        may_begin_item = (begin or self._cuts.is_at_line_start) and _NUMBER.match(text, begin)
        shown = begin if may_begin_item else len(text)
        self._held = text[shown:]
        await self._show_more(text[:shown])

    async def _show_more(self, text: str) -> None:
        rest, *sections = self._cuts.split(text)
        self._grown_from = len(self._hues) - 1
        with self.app.batch_update():
            await self._extend(rest)
            for section in sections:
                if mark := list_mark(section):
                    self._last.continue_list(mark)
                self._last = CompactMarkdown()
                self._hues.append(BlockHues(self._last, self._length))
                await self.mount(self._last)
                await self._extend(section)

    async def _extend(self, text: str) -> None:
        if text:
            self._length += len(text)
            await self._last.append(text)

    @property
    def source(self) -> str:
        """The whole text."""
        return "".join(section.source for section in self.query(CompactMarkdown))

    async def show(self, text: str) -> None:
        """Replace the text, as a single section."""
        text = text.translate(_SHOWN)
        self._last, *later = self.query(CompactMarkdown)
        for section in later:
            await section.remove()
        self._length, self._held, self._grown_from = len(text), "", 0
        self._cuts = SectionCuts()
        self._cuts.split(text)
        self._hues = [BlockHues(self._last, 0)]
        await self._last.update(text)

    def lay(self, coloured: Coloured, begin: int, *, has_cursor: bool, since: int = 0) -> None:
        """Show these hues, and no others from a position of this text on.

        begin: where this text begins in the text whose parts are coloured.
        """
        for hues in self._hues:
            if hues.offset >= since:
                hues.lay(coloured, begin, has_cursor=has_cursor and hues is self._hues[-1])

    @property
    def is_coloured(self) -> bool:
        """Whether any of the text has a hue."""
        return any(hues.is_painted for hues in self._hues)

    async def settle(self) -> None:
        """Complete what is only sketched while it grows."""
        held, self._held = self._held, ""
        await self._show_more(held)
        for block in self.query(CodeBlock):
            block.settle()


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
