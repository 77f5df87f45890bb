"""Keeps texts that were cleared from the prompt without being sent, for the next starts."""

import time
from pathlib import Path
from typing import Any, cast

from models.json_file import change_object, read_object

_TEXTS = "texts"
_MOST_TEXTS = 20
_MOST_SECONDS = 86_400.0
_LONGEST = 1 << 18
"""Characters of a text that is kept: all are read at the start."""

_Entry = tuple[float, str]
"""When a text was cleared, in seconds since 1970, and the text."""


class ClearedTexts:
    """The last few texts that were cleared within a day; pastes stand in them in full."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def texts(self) -> list[str]:
        """The texts, oldest first; none if the file is missing or damaged."""
        return [text for _, text in _entries(read_object(self._file))]

    def add(self, text: str) -> None:
        """Keep a text, if possible."""
        if len(text) <= _LONGEST:
            change_object(self._file, lambda held: {_TEXTS: _with(_entries(held), text)})


def _with(entries: list[_Entry], text: str) -> list[_Entry]:
    others = [entry for entry in entries if entry[1] != text]
    return [*others, (time.time(), text)][-_MOST_TEXTS:]


def _entries(held: dict[str, Any]) -> list[_Entry]:
    """Entries of a file's object of the last day; damaged ones are left out."""
    since, rows = time.time() - _MOST_SECONDS, held.get(_TEXTS)
    entries: list[_Entry] = []
    for row in cast("list[object]", rows) if isinstance(rows, list) else ():
        match row:
            case [int() | float() as when, str() as text] if when >= since:
                entries.append((when, text))
            case _:
                pass
    return entries
