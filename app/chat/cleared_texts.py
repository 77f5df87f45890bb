"""Keeps texts that were cleared from the prompt without being sent, for the next starts."""

import json
import time
from contextlib import suppress
from pathlib import Path

from backends.base.atomic_file import write_whole
from backends.base.private_file import make_private_folder
from backends.base.regular_file import read_bounded

_MOST_TEXTS = 5
_MOST_SECONDS = 86_400.0
_LONGEST = 1 << 20
"""Characters of a text that is kept: all are read at the start."""

_MOST_BYTES = 32 << 20


class ClearedTexts:
    """The last few texts that were cleared within a day; pastes stand in them in full."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def texts(self) -> list[str]:
        """The texts, oldest first; none if the file is missing or damaged."""
        return [text for _, text in self._entries()]

    def add(self, text: str) -> None:
        """Keep a text, if possible."""
        if len(text) > _LONGEST:
            return
        entries = [(when, kept) for when, kept in self._entries() if kept != text]
        entries = [*entries, (time.time(), text)][-_MOST_TEXTS:]
        with suppress(OSError):
            make_private_folder(self._file.parent)
            write_whole(self._file, json.dumps(entries, ensure_ascii=False))

    def _entries(self) -> list[tuple[float, str]]:
        since = time.time() - _MOST_SECONDS
        with suppress(OSError, ValueError, TypeError):
            held = json.loads(read_bounded(self._file, _MOST_BYTES))
            return [(float(when), str(text)) for when, text in held if float(when) >= since]
        return []
