"""Where growing Markdown can be cut into sections that look as one."""

import re

from app.tui.answer_text.list_block import BULLET_LIST, ORDERED_LIST

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
