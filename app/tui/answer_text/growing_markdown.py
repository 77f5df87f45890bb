"""Markdown that is appended to, at a cost independent of its length."""

import re
from typing import ClassVar

from textual.containers import Vertical

from app.printable import STAND_INS
from app.tui.answer_text.block_hues import BlockHues
from app.tui.answer_text.code_block import CodeBlock
from app.tui.answer_text.compact_markdown import CompactMarkdown
from app.tui.answer_text.drafted_runs import Coloured
from app.tui.answer_text.laid_out_once import LaidOutOnce
from app.tui.answer_text.section_cuts import SectionCuts, list_mark
from app.tui.typed_app import typed_app

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
