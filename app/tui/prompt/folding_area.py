"""A text area that folds long pastes into placeholders, each of which acts as one character."""

from dataclasses import replace

from textual import events
from textual.document._document import EditResult, Location
from textual.document._edit import Edit
from textual.reactive import reactive

from app.tui.prompt.attached import MOST_UNFOLDED, Attached, is_long
from app.tui.prompt.prompt_text import PromptText
from app.tui.prompt.text_fields import PrintableTextArea


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
        """The text with its attachments."""
        return PromptText(self.text, self.attached.of_text(self.text))

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
        if not is_long(text):
            self._put(text)
        elif (name := self.attached.folded_as(text, self.text)) is None:
            self._put(self.attached.fold(text, self.text))
        elif len(text) > MOST_UNFOLDED:
            self.fault = "too long to unfold"
        else:
            self._unfold(name, text)

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
        """Paste from the app's clipboard."""
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
