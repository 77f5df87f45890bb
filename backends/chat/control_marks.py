"""Marks that stand for control texts in what users and programs write."""

import re
from collections.abc import Sequence
from copy import copy

_MARKS = range(0xE000, 0xF900)
"""Private-use characters, of which an unused one, with a number, replaces a control text."""

_LONGEST_NUMBER = 9


class ControlMarks:
    """Keeps control texts in user text from becoming control tokens.

    known: texts in which the mark must not occur.
    """

    def __init__(self, special_texts: Sequence[str], known: Sequence[str]) -> None:
        self._special_texts = sorted(filter(None, special_texts), key=len, reverse=True)
        self.hidden: list[str] = []
        self.mark = unused_mark((*known, *special_texts))
        number = rf"([0-9]{{1,{_LONGEST_NUMBER}}})"
        self._shown_mark = re.compile(f"{self.mark}{number}{self.mark}")

    def copy(self) -> "ControlMarks":
        """Marks of the same texts, to which more can be added."""
        marks = copy(self)
        marks.hidden = list(self.hidden)
        return marks

    def hide(self, content: str) -> str:
        """Text with a mark in place of each control text."""
        for text in self._special_texts:
            if text in content:
                content = content.replace(text, f"{self.mark}{len(self.hidden)}{self.mark}")
                self.hidden.append(text)
        return content

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Pieces of text, each with whether control texts in it are control tokens."""
        if not self.hidden:
            return [(text, True)]
        return [
            (piece, True) if index % 2 == 0 else (self._shown(piece), False)
            for index, piece in enumerate(self._shown_mark.split(text))
            if piece
        ]

    def _shown(self, number: str) -> str:
        """Text behind a mark; a template may write marks of its own."""
        return self.hidden[int(number)] if int(number) < len(self.hidden) else number


def unused_mark(texts: Sequence[str]) -> str:
    """Private-use character that is in none of the texts."""
    marks = map(chr, _MARKS)
    return next((mark for mark in marks if not any(mark in text for text in texts)), chr(_MARKS[0]))
