"""The settings: each changes at once, in its row."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, TextArea

from app.dialogue.settings_editor import SAVED_PRESET, SettingsEditor
from app.dialogue.tree import Changes, OwnChanges
from app.loading.placement import SMALLEST_CONTEXT
from app.loading.session_options import DEFAULT_CONTEXT
from app.printable import one_line
from app.settings.answering import PRESET
from app.settings.catalogue import AHEAD_CHOICES, BY_NAME, MOST_AHEAD_WASTE, Value
from app.tui.keymap import THEMES
from app.tui.lists import CURSOR, ListScreen, Row, columns, lead_of, text_row
from app.tui.text_fields import PrintableInput, PrintableTextArea, typed
from app.tui.widgets import is_narrow
from backends.base import SpecchatError
from backends.chat.reply_form import EFFORTS


class Edit(Enum):
    TEXT = auto()
    LINES = auto()
    CHOICE = auto()
    LIST = auto()
    NAME = auto()


_EDITS = {Edit.CHOICE: "← → change", Edit.LIST: "Enter lists them", Edit.NAME: "Enter name it"}


@dataclass(frozen=True, slots=True)
class SettingField:
    """A row. name: of the setting. text: what it does. unit: after a number.

    wanted: what can be typed, said after something else was.
    """

    name: str
    label: str
    text: str
    edit: Edit = Edit.TEXT
    unit: str = ""
    words: tuple[tuple[Value, str, str], ...] = ()
    """Values with their words, and with shorter ones for narrow screens."""
    choices: tuple[Value, ...] = ()
    wanted: str = ""

    def shown(self, value: Value | None, *, is_small: bool = False) -> str:
        for known, words, short in self.words:
            if value == known and isinstance(value, bool) == isinstance(known, bool):
                return short if is_small else words
        if value is None:
            return "random"
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = f"{value:,}" if isinstance(value, int) else f"{value:g}"
            return f"{number} {self.unit}".rstrip()
        return one_line(str(value)) or "none"


def _switch(name: str, label: str, text: str) -> SettingField:
    words = ((True, "yes", "yes"), (False, "no", "no"))
    return SettingField(name, label, text, Edit.CHOICE, "", words, (True, False))


_PANEL = (
    ("auto", "where there is room", "where it fits"),
    ("shown", "always", "always"),
    ("hidden", "never", "never"),
)
_AHEAD = (
    ("auto", "when the machine has time to spare", "with spare time"),
    ("on", "always", "always"),
    ("off", "never", "never"),
)

SAVE = SettingField(SAVED_PRESET, "Save as preset",
                    "This chat's instructions and settings, under a name.",
                    Edit.NAME, words=(("", "", ""),))  # fmt: skip
CHAT = (
    SettingField("system", "Instructions", "What the model is told before the chat.", Edit.LINES),
    SettingField("temperature", "Temperature", "0 always picks the likeliest word; higher varies.",
                 wanted="0, or a number from 0.001 to 100, such as 0.7"),
    SettingField("max_tokens", "Longest answer", "Longer ones are cut; Ctrl+T continues.",
                 unit="tokens", wanted="a whole number from 1, such as 2048"),
    SettingField(PRESET, "Preset", "Instructions and settings under a name.", Edit.LIST),
    SAVE,
)  # fmt: skip
MORE = (
    SettingField("top_k", "Top-k", "Only the k likeliest tokens; 0 for all.",
                 wanted="a whole number from 0, such as 40"),
    SettingField("top_p", "Top-p", "Only the likeliest tokens that add up to this share.",
                 wanted="a number above 0, at most 1, such as 0.95"),
    SettingField("min_p", "Min-p", "Only tokens with this share of the likeliest one's.",
                 wanted="a number from 0 to 1, such as 0.05"),
    SettingField("repeat_penalty", "Repetition", "Above 1 repeats less; 1 changes nothing.",
                 wanted="a number from 0.01 to 100, such as 1.1"),
    SettingField("seed", "Seed", "A number makes the same answer again.",
                 wanted="a whole number from 0, such as 7"),
    SettingField("think", "Thinking",
                 "Whether the model thinks first, where its template offers that.",
                 Edit.CHOICE, choices=EFFORTS),
    SettingField("think_budget", "Thinking budget", "Ends longer thinking; 0 for any length.",
                 unit="tokens", wanted="a whole number from 0, such as 500"),
    SettingField("lossy", "Lossy",
                 "Also keeps guesses that the model would not have made: faster, but no longer its "
                 "own answers. off, typical, ears:0.1 or lenient:2.",
                 wanted="off, typical, ears:0.1 or lenient:2"),
)  # fmt: skip
EVERY_CHAT = (
    SettingField("model", "Model", "What answers.", Edit.LIST,
                 words=(("", "not loaded", "not loaded"),)),
    SettingField("draft", "Drafter", "What guesses ahead.", Edit.LIST),
    SettingField("ctx", "Context size", "What the model can see; more takes more memory.",
                 unit="tokens",
                 wanted=f"a whole number from {SMALLEST_CONTEXT}, such as {DEFAULT_CONTEXT}"),
    _switch("learn", "Learn", "Drafters learn from answers, on this machine alone."),
    SettingField("ahead", "Read ahead", "Reads what you type before you send it.", Edit.CHOICE,
                 words=_AHEAD, choices=AHEAD_CHOICES),
    SettingField("ahead_waste", "Reading limit",
                 "Processor time for text that changes before it is sent.",
                 unit="s a message", wanted=f"a number from 0 to {MOST_AHEAD_WASTE:g}, such as 5"),
)  # fmt: skip
APPEARANCE = (
    SettingField("theme", "Theme", "Colours of the app.", Edit.CHOICE, choices=THEMES),
    SettingField("panel", "Panel", "Figures beside the chat; F2 shows and hides them.", Edit.CHOICE,
                 words=_PANEL, choices=BY_NAME["panel"].choices),
    _switch("animations", "Animation", "Moving and fading on the screen."),
    _switch("enter_sends", "Enter sends", "If not, Ctrl+J sends and Enter starts a new line."),
)  # fmt: skip
MORE_TEXT = f"More: {', '.join(field.label.lower() for field in MORE)}"
MORE_SHORT = "More…"


_UNDO = "Ctrl+Z undo"
_EDIT_KEYS = "Enter sets · empty: the default · Esc keeps it", "Enter sets · Esc keeps it"
_LINES_KEYS = "Enter sets · Ctrl+J new line · Esc keeps it", "Enter sets · Ctrl+J line · Esc"
_UPDATE_SECONDS = 0.5
"""Between two looks at values that change by themselves, such as the model's name."""

_SHORT = 20
"""Rows below which the screen has no blank lines between groups."""

_VALUE_LEFT = 18
"""Columns before a value: a blank, the cursor and the label."""

_VALUE_WIDTH = 39
_LABEL_WIDTH = _VALUE_LEFT - 3
_TITLE = "Settings", "● not the default"
_MORE = "more"
_LINES = 5


class _LinesArea(PrintableTextArea):
    """A field of several lines; Enter submits it, Ctrl+J and Shift+Enter begin a line."""

    class Submitted(Message):
        """The text is complete."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.post_message(self.Submitted())
        elif event.key in ("ctrl+j", "shift+enter"):
            event.stop()
            event.prevent_default()
            self.insert("\n")


class SettingsScreen(ListScreen[str | None]):
    """Returns the list to open next: "preset", "model" or "drafters"; None for none."""

    BINDINGS: ClassVar = [
        Binding("left", "cycle(-1)", show=False),
        Binding("right", "cycle(1)", show=False),
        Binding("ctrl+z", "undo", "Undo", priority=True),
        Binding("ctrl+y", "redo", "Redo", priority=True),
        Binding("ctrl+s", "make_default", "Default for new chats", priority=True),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    SettingsScreen Dialog { layers: below above; }
    SettingsScreen.-wide Dialog { width: 84; height: 25; max-height: 100%; }
    SettingsScreen #value, SettingsScreen #lines,
    SettingsScreen #value:focus, SettingsScreen #lines:focus {
        layer: above; display: none; padding: 0; border: none; background: $panel;
    }
    SettingsScreen #lines, SettingsScreen #lines:focus {
        border: round $primary; background: $surface;
    }
    SettingsScreen #details { min-height: 0; max-height: 6; }
    """

    def __init__(self, editor: SettingsEditor, changes: Changes) -> None:
        super().__init__("Settings")
        self._editor = editor
        self._changes = OwnChanges(changes)
        self._edited: SettingField | None = None
        self._fields = {one.name: one for one in (*CHAT, *MORE, *EVERY_CHAT, *APPEARANCE)}
        self._doubted = ""
        """The preset that is replaced if its name is entered again."""
        self._is_expanded = any(editor.differs(field.name) for field in MORE)
        self._value = PrintableInput(compact=True, select_on_focus=False, id="value")
        self._lines = _LinesArea(highlight_cursor_line=False, id="lines")

    def _parts(self) -> ComposeResult:
        yield from super()._parts()
        yield self._value
        yield self._lines

    def on_mount(self) -> None:
        self._rows.focus()
        self._show()
        self._dialog.show_title(*_TITLE)
        self.set_interval(_UPDATE_SECONDS, self._update)

    def _update(self) -> None:
        if self._edited is None:
            self._rows.show(list(self._all_rows()))

    def on_key(self, event: events.Key) -> None:
        """Type into the highlighted row: a new value, or further instructions."""
        field = self._edited or self._chosen
        is_text = field is not None and field.edit not in (Edit.CHOICE, Edit.LIST)
        text = typed(event)
        if field is None or not is_text or not text:
            return
        event.stop()
        if self._edited is None:
            self._open_field(field)
            self._value.clear()
        if field.edit is Edit.LINES:
            self._lines.insert(text)
        else:  # also keys that were on their way to the list
            self._value.insert_text_at_cursor(text)

    def on_resize(self) -> None:
        self._close_field()
        self._show()
        self.call_after_refresh(self._explain)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        del parameters
        return self._edited is None or action == "leave"

    # What is shown

    def _show(self) -> None:
        self._rows.show(list(self._all_rows()))
        self._explain()

    def _all_rows(self) -> Iterator[Row]:
        is_spaced = self.app.size.height > _SHORT
        yield text_row(" This chat", "bold")
        yield from map(self._row, CHAT)
        if self._is_expanded:
            yield from map(self._row, MORE)
        else:
            yield Row(_MORE, _more_row)
        for title, fields in (("Every chat", EVERY_CHAT), ("Appearance", APPEARANCE)):
            if is_spaced:
                yield text_row("")
            yield text_row(f" {title}", "bold")
            yield from map(self._row, fields)

    def _row(self, field: SettingField) -> Row:
        def render(width: int, is_focused: bool) -> Content:
            editor = self._editor
            shown = field.shown(editor.value(field.name), is_small=is_narrow(width))
            room = max(min(_VALUE_WIDTH, width - _VALUE_LEFT - 2), 1)
            mark = "●" if editor.differs(field.name) else ""
            label = Content.styled(field.label, "bold" if is_focused else "")
            lead = lead_of(is_focused, mark, "$text-primary")
            return columns(lead, (label, _LABEL_WIDTH), (Content(shown), room))

        return Row(field.name, render)

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        field = self._chosen
        text = "" if field is None else self._explained(field)
        self._details.update(Content(text))
        self._show_keys()

    def _show_keys(self) -> None:
        """Name the keys that do something now, in as many words as there is room for."""
        field = self._edited
        if field is not None:
            special = {Edit.LINES: _LINES_KEYS, Edit.NAME: ("Enter saves · Esc back",)}
            self._dialog.show_keys(*special.get(field.edit, _EDIT_KEYS))
            return
        chosen = self._chosen
        change = _EDITS.get(chosen.edit, "Enter edit") if chosen else "Enter shows them"
        keys = [change, _UNDO] if self._changes.has_any else [change]
        self._dialog.show_keys(
            " · ".join([*keys, "Ctrl+S default for new chats", "Esc back"]),
            " · ".join([*keys, "Esc back"]),
            " · ".join([*keys, "Esc"]),
        )

    def _explained(self, field: SettingField) -> str:
        default = field.shown(self._editor.default(field.name))
        ends = "" if field.edit in (Edit.LIST, Edit.NAME) else f" Default: {default}"
        label = "" if is_narrow(self.app.size.width) else f"{field.label}: "
        return f"{label}{field.text}{ends}"

    @property
    def _chosen(self) -> SettingField | None:
        return self._fields.get(self._rows.focused_id or "")

    # Changing

    @on(OptionList.OptionSelected)
    def _entered(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        field = self._chosen
        if self._edited is not None:  # the key was on its way to the list
            self._submitted()
        elif field is None:
            self._is_expanded = True
            self._show()
            self._rows.highlight(MORE[0].name)
        elif field.edit is Edit.LIST:
            self.dismiss("drafters" if field.name == "draft" else field.name)
        elif field.edit is Edit.CHOICE:
            self.action_cycle(1)
        else:
            self._open_field(field)

    def action_cycle(self, step: int) -> None:
        field = self._chosen
        if field is None or not field.choices:
            return
        value = self._editor.value(field.name)
        index = field.choices.index(value) if value in field.choices else -1
        self._try(field, field.choices[(index + step) % len(field.choices)])

    def _open_field(self, field: SettingField) -> None:
        """Edit a value in its row, or several lines in a frame below it."""
        index = self._rows.highlighted
        if index is None:
            return
        self._edited, self._doubted = field, ""
        value = self._editor.value(field.name)
        text = "" if value is None else str(value)
        top, size = index - round(self._rows.scroll_offset.y), self._rows.size
        control = self._lines if field.edit is Edit.LINES else self._value
        if control is self._value:
            self._value.value = text
            self._value.select_all()
            control.styles.offset = (_VALUE_LEFT, top)
            control.styles.width = max(size.width - _VALUE_LEFT - 1, 1)
        else:
            self._lines.text = text
            height = max(min(_LINES, size.height - 2), 1) + 2
            control.styles.offset = (0, max(min(top + 1, size.height - height), 0))
            control.styles.height, control.styles.width = height, max(size.width, 1)
        control.display = True
        self.set_focus(control)  # at once: it gets the keys that follow
        self._show_keys()
        if control is self._lines:
            self._lines.move_cursor(self._lines.document.end)

    @on(Input.Submitted)
    @on(_LinesArea.Submitted)
    def _submitted(self) -> None:
        field = self._edited
        if field is None:
            return
        text = self._lines.text if field.edit is Edit.LINES else self._value.value
        if self._save(text.strip()) if field is SAVE else self._try(field, text, is_typed=True):
            self._close_field()

    def _save(self, name: str) -> bool:
        """Save a preset; one that exists is replaced when its name is entered again."""
        presets = self._editor.presets
        try:
            if name != self._doubted and (name in presets.names() or presets.path(name).exists()):
                self._doubted = name
                self._tell(name, "there is such a preset; Enter again replaces it")
                return False
            self._editor.save_preset(name)
        except SpecchatError as error:
            self._tell("Not saved", error.why or error.what)
            return False
        self._changes.count()
        self._dialog.show_title("Settings", f"saved preset {name}")
        self._show()
        return True

    @on(Input.Changed)
    @on(TextArea.Changed)
    def _typed(self) -> None:
        """A new text may be usable: the error about the old one goes."""
        if self._edited is not None:
            self._details.update(Content(self._explained(self._edited)))

    def _close_field(self) -> None:
        if self._edited is not None:
            self._edited = None
            self._value.display = self._lines.display = False
            self.set_focus(self._rows)
            self._show_keys()

    def _try(self, field: SettingField, value: Value, *, is_typed: bool = False) -> bool:
        """Change a setting, or tell in place of its explanation why it cannot be changed."""
        try:
            wanted = self._editor.parsed(field.name, str(value)) if is_typed else value
        except SpecchatError as error:
            self._tell(field.label, field.wanted or error.why)
            return False
        try:
            is_changed = self._editor.change(field.name, wanted)
        except SpecchatError as error:
            self._tell(field.label, error.why or error.what)
            return False
        if is_changed:
            self._changes.count()
            self._dialog.show_title(*_TITLE)
        self._show()
        return True

    def _tell(self, label: str, why: str) -> None:
        self._details.update(Content.styled(f"✕ {label}: {one_line(why)}", "$text-error"))

    def action_make_default(self) -> None:
        try:
            self._editor.make_default()
        except SpecchatError as error:
            self._tell("Not saved", error.why or error.what)
            return
        self._changes.count()
        self._dialog.show_title("Settings", "default for new chats")
        self._show()

    async def action_undo(self) -> None:
        await self._move(self._changes.undo)

    async def action_redo(self) -> None:
        await self._move(self._changes.redo)

    async def _move(self, move: Callable[[], Awaitable[str]]) -> None:
        try:
            await move()
        except SpecchatError as error:
            self._tell("Not changed", error.why or error.what)
            return
        self._dialog.show_title(*_TITLE)
        self._show()

    def action_leave(self) -> None:
        """Leave a value as it was, else close the screen."""
        if self._edited is None:
            self.dismiss(None)
        else:
            self._close_field()
            self._explain()


def _more_row(width: int, is_focused: bool) -> Content:
    text = MORE_SHORT if is_narrow(width) else MORE_TEXT
    style = "bold" if is_focused else ""
    return Content.assemble(f" {CURSOR} " if is_focused else "   ", (text, style))
