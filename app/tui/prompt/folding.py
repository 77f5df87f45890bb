"""A text area that folds long pastes into placeholders, each of which acts as one character."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, count

from textual import events
from textual.document._document import EditResult, Location
from textual.document._edit import Edit
from textual.reactive import reactive

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.named_files import begin_reading, names_in, names_of_paths
from app.documents.folders import is_file
from app.tui.text_fields import PrintableTextArea


@dataclass(frozen=True, slots=True)
class PromptText:
    """A text as it is typed, and the contents of its folded pastes and named files."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()


_MOST_LINES = 5
_MOST_CHARACTERS = 800
"""A longer paste is folded."""

_READ_SECONDS = 1.0
"""How long Enter waits for a file."""

MOST_UNFOLDED = 50_000
"""Most characters of a paste that can be unfolded; more would make typing slow."""


def is_long(text: str) -> bool:
    return len(text) > _MOST_CHARACTERS or _lines(text) > _MOST_LINES


class Attached:
    """Attachments of the prompt by name; those no longer in the text are kept for undo."""

    def __init__(self) -> None:
        self._pastes: dict[str, str] = {}
        self._files: dict[str, Attachment] = {}
        self._placeholders: re.Pattern[str] | None = None

    def fold(self, text: str, around: str = "", what: str = "pasted") -> str:
        """A new placeholder for a paste. around: a text that must not contain it already."""
        lines = _lines(text)
        counted = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        suffixes = chain([""], (f", {number}" for number in count(2)))
        names = (f"[{what} {counted}{suffix}]" for suffix in suffixes)
        name = next(name for name in names if name not in self._pastes and name not in around)
        self._pastes[name] = text
        self._compile()
        return name

    def folded_as(self, pasted: str, text: str) -> str | None:
        return next(
            (name for name, paste in self._pastes.items() if paste == pasted and name in text), None
        )

    def adopt(self, written: PromptText) -> str:
        """Take over attachments; returns the text, whose placeholders may get other names."""
        renamed: dict[str, str] = {}
        for attachment in written.attachments:
            name, text = attachment.name, attachment.text
            if attachment.is_named:
                self._files[name] = attachment
            elif self._pastes.setdefault(name, text) != text:
                renamed[name] = self.fold(text, written.text)
        self._compile()
        if not renamed:
            return written.text
        return _alternatives(renamed).sub(lambda match: renamed[match[0]], written.text)

    def of_text(self, text: str) -> tuple[Attachment, ...]:
        """Pastes in a text, one for each placeholder, and missing files that were read before."""
        names = [text[start:end] for start, end in self.spans(text)]
        named = names_in(text, self._files) if self._files else []
        return (
            *(Attachment(AttachmentKind.PASTE, name, self._pastes[name]) for name in names),
            *(self._files[name] for name in named if name in self._files and not is_file(name)),
        )

    def spans(self, text: str) -> list[tuple[int, int]]:
        if self._placeholders is None:
            return []
        return [match.span() for match in self._placeholders.finditer(text)]

    def expanded(self, text: str) -> str:
        if self._placeholders is None:
            return text
        return self._placeholders.sub(lambda match: self._pastes[match[0]], text)

    def faults(self, text: str) -> list[str] | None:
        """Why files that a text names cannot be added; one that was read before can.

        None while one is still being read.
        """
        try:
            return begin_reading(text, self._files).result(_READ_SECONDS)[1]
        except TimeoutError:
            return None

    def clear(self) -> None:
        self._pastes.clear()
        self._files.clear()
        self._placeholders = None

    def _compile(self) -> None:
        self._placeholders = _alternatives(self._pastes) if self._pastes else None


def _alternatives(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, names)))


def _lines(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


class FoldingArea(PrintableTextArea):
    """Pasting the same again unfolds it; undo brings back a deleted placeholder."""

    fault: reactive[str] = reactive("")
    """What is wrong with the text, until it changes."""

    def __init__(self, placeholder: str) -> None:
        self.attached = Attached()
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder=placeholder,
            id="prompt",
        )

    @property
    def written(self) -> PromptText:
        return PromptText(self.text, self.attached.of_text(self.text))

    @property
    def split(self) -> tuple[PromptText, PromptText]:
        """The placeholders at the start, and what is typed behind them."""
        text, end = self.text, 0
        for first, last in self.attached.spans(text):
            if not text[end:first].strip():
                end = last
        chips, typed = f"{text[:end]} " if end else "", text[end:].strip()
        of_text = self.attached.of_text
        return PromptText(chips, of_text(chips)), PromptText(typed, of_text(typed))

    def rewrite(self, written: PromptText) -> None:
        """Replace everything, as an edit that can be undone; the cursor goes to the end."""
        text = self.attached.adopt(written)
        if len(text) > MOST_UNFOLDED:
            text = self.attached.fold(self.attached.expanded(text))
        self.history.checkpoint()
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
        self.history.checkpoint()
        self.move_cursor(self.document.end)

    def paste(self, text: str) -> None:
        """Insert a text at the cursor, folded if it is long; unfold it if it is there already."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if not self.text.startswith(("/", "!")) and (names := names_of_paths(text)):
            row, column = self.selection.end
            self._put(names[self.document.get_line(row)[:column].endswith("@") :])
        elif not is_long(text):
            self._put(text)
        elif (name := self.attached.folded_as(text, self.text)) is None:
            self._put(self.attached.fold(text, self.text))
        elif len(text) > MOST_UNFOLDED:
            self.fault = "too long to unfold"
        else:
            self._unfold(name, text)

    def attach(self, text: str, what: str) -> None:
        """Insert a placeholder for a text that was not typed, such as a command's output."""
        if self.split[1].text.startswith("!"):  # not into a command that is being typed
            self.insert(f"{self.attached.fold(text, self.text, what)} ", (0, 0))
            return
        row, column = self.selection.end
        before = self.document.get_line(row)[:column]
        space = " " * (not before[-1:].isspace() and bool(before))
        self._put(f"{space}{self.attached.fold(text, self.text, what)} ")

    def _put(self, text: str) -> None:
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    def _unfold(self, name: str, text: str) -> None:
        row, line = next(
            (row, line) for row, line in enumerate(self.document.lines) if name in line
        )
        column = line.index(name)
        result = super().edit(Edit(text, (row, column), (row, column + len(name)), False))
        self.move_cursor(result.end_location)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste(event.text)
        self.focus()

    def action_paste(self) -> None:
        self.paste(self.app.clipboard)

    def edit(self, edit: Edit) -> EditResult:
        """Perform an edit; a placeholder that it touches is replaced as a whole."""
        top, bottom = self.before_unit(edit.top), self.behind_unit(edit.bottom)
        if (top, bottom) != (edit.top, edit.bottom):
            edit = replace(edit, from_location=top, to_location=bottom)
        return super().edit(edit)

    def unit_at(self, location: Location) -> tuple[int, int]:
        """Columns of the character or placeholder around a location."""
        start, end = super().unit_at(location)
        if (row := location[0]) < self.document.line_count:
            for first, last in self.attached.spans(self.document.get_line(row)):
                if first < start < last or first < end < last:
                    start, end = min(first, start), max(last, end)
        return start, end
