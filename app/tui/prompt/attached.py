"""Texts that belong to the prompt without standing in it: folded pastes, and files read before."""

import re
from collections.abc import Iterable

from app.chat.attachment import Attachment, AttachmentKind
from app.chat.named_files import is_file, names_in, read_files
from app.tui.prompt.prompt_text import PromptText

_MOST_LINES = 5
_MOST_CHARACTERS = 800
"""A longer paste is folded."""

MOST_UNFOLDED = 50_000
"""Most characters of a paste that can be unfolded; more would make typing slow."""


def is_long(text: str) -> bool:
    """Whether a paste is folded."""
    return len(text) > _MOST_CHARACTERS or _lines(text) > _MOST_LINES


class Attached:
    """Attachments of the prompt by name; those no longer in the text are kept for undo."""

    def __init__(self) -> None:
        self._pastes: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._placeholders: re.Pattern[str] | None = None

    def fold(self, text: str, around: str = "") -> str:
        """A new placeholder for a paste. around: a text that must not contain it already."""
        lines = _lines(text)
        counted = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        names = (f"[pasted {counted}{suffix}]" for suffix in _suffixes())
        name = next(name for name in names if name not in self._pastes and name not in around)
        self._add(name, text)
        return name

    def folded_as(self, pasted: str, text: str) -> str | None:
        """The placeholder in a text that stands for this paste, None if there is none."""
        return next(
            (name for name, paste in self._pastes.items() if paste == pasted and name in text), None
        )

    def adopt(self, written: PromptText) -> str:
        """Take over attachments; returns the text, whose placeholders may get other names."""
        renamed: dict[str, str] = {}
        for attachment in written.attachments:
            name, text = attachment.name, attachment.text
            if attachment.kind is AttachmentKind.FILE:
                self._files[name] = text
            elif self._pastes.setdefault(name, text) != text:
                renamed[name] = self.fold(text, written.text)
        self._compile()
        if not renamed:
            return written.text
        return _alternatives(renamed).sub(lambda match: renamed[match[0]], written.text)

    def of_text(self, text: str) -> tuple[Attachment, ...]:
        """Pastes in a text, one for each placeholder, and missing files that were read before."""
        names = [text[start:end] for start, end in self.spans(text)]
        named = names_in(text, self._files.__contains__) if self._files else []
        return (
            *(Attachment(AttachmentKind.PASTE, name, self._pastes[name]) for name in names),
            *(
                Attachment(AttachmentKind.FILE, name, self._files[name])
                for name in named
                if name in self._files and not is_file(name)
            ),
        )

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where placeholders begin and end in a text."""
        if self._placeholders is None:
            return []
        return [match.span() for match in self._placeholders.finditer(text)]

    def expanded(self, text: str) -> str:
        """A text with its pastes in place of their placeholders."""
        if self._placeholders is None:
            return text
        return self._placeholders.sub(lambda match: self._pastes[match[0]], text)

    def faults(self, text: str) -> list[str]:
        """Why files that a text names cannot be added; one that was read before can."""
        return read_files(text, self._files.__contains__)[1]

    def clear(self) -> None:
        """Forget all attachments."""
        self._pastes.clear()
        self._files.clear()
        self._placeholders = None

    def _add(self, name: str, text: str) -> None:
        self._pastes[name] = text
        self._compile()

    def _compile(self) -> None:
        self._placeholders = _alternatives(self._pastes) if self._pastes else None


def _alternatives(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, names)))


def _suffixes() -> Iterable[str]:
    yield ""
    number = 2
    while True:
        yield f", {number}"
        number += 1


def _lines(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1
