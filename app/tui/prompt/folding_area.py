"""A text area that folds long pastes into placeholders, each of which acts as one character."""

from dataclasses import replace

from textual import events
from textual.document._document import EditResult, Location, Selection
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

    # A placeholder is one unit

    def edit(self, edit: Edit) -> EditResult:
        """Perform an edit; a placeholder that it touches is replaced as a whole."""
        top, bottom = self._before(edit.top), self._behind(edit.bottom)
        if (top, bottom) != (edit.top, edit.bottom):
            edit = replace(edit, from_location=top, to_location=bottom)
        return super().edit(edit)

    def validate_selection(self, selection: Selection) -> Selection:
        """Keep the cursor out of placeholders."""
        return Selection(self._nearest(selection.start), self._nearest(selection.end))

    def get_cursor_left_location(self) -> Location:
        """Where the cursor goes on moving left."""
        return self._before(super().get_cursor_left_location())

    def get_cursor_right_location(self) -> Location:
        """Where the cursor goes on moving right."""
        return self._behind(super().get_cursor_right_location())

    def get_cursor_word_left_location(self) -> Location:
        """Where the cursor goes on moving a word to the left."""
        return self._before(super().get_cursor_word_left_location())

    def get_cursor_word_right_location(self) -> Location:
        """Where the cursor goes on moving a word to the right."""
        return self._behind(super().get_cursor_word_right_location())

    def _before(self, location: Location) -> Location:
        start, _ = self._placeholder_at(location)
        return location[0], start

    def _behind(self, location: Location) -> Location:
        _, end = self._placeholder_at(location)
        return location[0], end

    def _nearest(self, location: Location) -> Location:
        row, column = location
        start, end = self._placeholder_at(location)
        return row, start if column - start < end - column else end

    def _placeholder_at(self, location: Location) -> tuple[int, int]:
        """Columns of the placeholder around a location; twice its own column if none is."""
        row, column = location
        if row < self.document.line_count:
            for start, end in self.attached.spans(self.document.get_line(row)):
                if start < column < end:
                    return start, end
        return column, column
