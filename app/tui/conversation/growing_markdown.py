"""Markdown that grows at its end, at a cost that does not grow with it."""

import itertools
import re
from collections.abc import Iterator
from typing import ClassVar

from textual.containers import Vertical

from app.tui.conversation.compact_markdown import CompactMarkdown

_SECTION_LINES = 24

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)]) ")


class GrowingMarkdown(Vertical):
    """A long list is shown as several: the widget builds the list at its end anew each time."""

    DEFAULT_CSS: ClassVar[str] = """
    GrowingMarkdown { height: auto; }
    GrowingMarkdown > .-bullets-go-on > MarkdownBulletList:last-child { margin: 0; }
    GrowingMarkdown > .-numbers-go-on > MarkdownOrderedList:last-child { margin: 0; }
    """

    def __init__(self, text: str = "") -> None:
        self._last = CompactMarkdown(text)
        super().__init__(self._last, classes="answer")

    async def append(self, text: str) -> None:
        """Show more text."""
        rest, *sections = _parted(self._last.source, text)
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
        """All of the text."""
        return "".join(section.source for section in self.query(CompactMarkdown))

    async def show(self, text: str) -> None:
        """Show another text instead, as one."""
        self._last, *others = self.query(CompactMarkdown)
        for one in others:
            await one.remove()
        self._last.remove_class("-bullets-go-on", "-numbers-go-on")
        await self._last.update(text)


def _parted(section: str, text: str) -> list[str]:
    """A text that follows a section: its part that goes on with it, and sections of their own."""
    whole = section + text
    cuts = [len(section), *_cuts(whole, len(section)), len(whole)]
    return [whole[begin:end] for begin, end in itertools.pairwise(cuts)]


def _cuts(whole: str, first: int) -> Iterator[int]:
    """Where sections may begin: at items of a list that are not part of another one.

    whole: a section so far and what follows; first: nothing before it can be cut any more.
    """
    place, lines, fence = 0, 0, ""
    for line in whole.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            if mark and line.strip().startswith(fence) and not line.strip(" \n" + fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif lines >= _SECTION_LINES and place >= first and _ITEM.match(line):
            yield place
            lines = 0
        place += len(line)
        lines += 1
