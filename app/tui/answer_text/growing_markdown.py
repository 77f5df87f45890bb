"""Markdown that is appended to, at a cost independent of its length."""

import itertools
import re
from collections.abc import Iterator
from typing import ClassVar

from textual.containers import Vertical

from app.tui.answer_text.compact_markdown import CompactMarkdown
from app.tui.typed_app import typed_app

_SECTION_LINES = 24
"""Minimum length of a section."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)]) ")


class GrowingMarkdown(Vertical):
    """Markdown in sections, of which only the last grows.

    Textual rebuilds a list whenever it grows, so a long list is split into several.
    """

    app = typed_app
    DEFAULT_CSS: ClassVar[str] = """
    GrowingMarkdown { height: auto; }
    GrowingMarkdown > .-bullets-go-on > MarkdownBulletList:last-child { margin: 0; }
    GrowingMarkdown > .-numbers-go-on > MarkdownOrderedList:last-child { margin: 0; }
    """

    def __init__(self, text: str = "") -> None:
        self._last = CompactMarkdown(text)
        super().__init__(self._last, classes="answer")

    async def append(self, text: str) -> None:
        """Append text."""
        rest, *sections = _split(self._last.source, text)
        with self.app.batch_update():
            await self._last.append(rest)
            for section in sections:
                kind = "-bullets-go-on" if section[0] in "-*+" else "-numbers-go-on"
                self._last.add_class(kind)
                self._last = CompactMarkdown()
                await self.mount(self._last)
                await self._last.append(section)

    @property
    def source(self) -> str:
        """The whole text."""
        return "".join(section.source for section in self.query(CompactMarkdown))

    async def show(self, text: str) -> None:
        """Replace the text, as a single section."""
        self._last, *later = self.query(CompactMarkdown)
        for section in later:
            await section.remove()
        self._last.remove_class("-bullets-go-on", "-numbers-go-on")
        await self._last.update(text)


def _split(section: str, text: str) -> list[str]:
    """Split text that follows a section into the section's continuation and new sections."""
    whole = section + text
    cuts = [len(section), *_cuts(whole, len(section)), len(whole)]
    return [whole[begin:end] for begin, end in itertools.pairwise(cuts)]


def _cuts(whole: str, first: int) -> Iterator[int]:
    """Positions where sections may begin: at top-level list items outside code blocks.

    whole: the last section and the text that follows it; first: the earliest position allowed.
    """
    position, lines, fence = 0, 0, ""
    for line in whole.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            if mark and line.strip().startswith(fence) and not line.strip(" \n" + fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif lines >= _SECTION_LINES and position >= first and _ITEM.match(line):
            yield position
            lines = 0
        position += len(line)
        lines += 1
