"""One row of the settings page: a label, a control and the reason why its value is invalid."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Label, Select, Static, TextArea

from app.drafting.spec import draft_spec
from app.settings import catalogue
from app.settings.catalogue import Key, Kind, Part, Value
from app.tui.prompt.text_fields import PrintableInput, PrintableTextArea
from backends.base import SpecchatError, UsageError

_VALUE_OF_EMPTY = {"draft": draft_spec.AUTO}
_SWITCH = (("yes", "true"), ("no", "false"))

Control = Input | Select[str] | TextArea


class SettingField(Vertical):
    """Edits the value of one key as text. default: the value in effect while the field is empty."""

    DEFAULT_CSS: ClassVar[str] = """
    SettingField { height: auto; }
    SettingField Horizontal { height: auto; }
    SettingField Label { width: 16; }
    SettingField Input, SettingField Select { width: 1fr; }
    SettingField TextArea { width: 1fr; height: auto; min-height: 2; max-height: 5; }
    SettingField .fault { height: auto; padding: 0 0 0 16; color: $text-error; display: none; }
    """

    def __init__(
        self,
        key: Key,
        value: str,
        default: str = "",
        choices: Sequence[str] = (),
        check: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(id=f"field-{key.name}")
        self.key = key
        self._initial = value
        self._check = check
        self._control = _control(key, value, default, choices or key.choices)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self.key.label)
            yield self._control
        yield Static(classes="fault")

    @property
    def text(self) -> str:
        """The value as text."""
        control = self._control
        if isinstance(control, Select):
            return str(control.value)
        return control.text if isinstance(control, TextArea) else control.value.strip()

    @text.setter
    def text(self, text: str) -> None:
        if isinstance(self._control, TextArea):
            self._control.text = text
        else:
            self._control.value = text

    @property
    def is_changed(self) -> bool:
        """Whether the value differs from the initial one."""
        return self.text != self._initial

    def value(self) -> Value | None:
        """The value; None for an empty field of a chat setting, whose default then applies.

        Raises:
            UsageError: it is invalid; the field shows the reason.
        """
        self._show_fault("")
        text = self.text or _VALUE_OF_EMPTY.get(self.key.name, "")
        if not text and self.key.part is Part.CHAT:
            return None
        try:
            if self._check is not None and self.is_changed:
                self._check(text)
            return catalogue.parsed(self.key, text)
        except SpecchatError as error:
            self._show_fault(error.why or error.what)
            raise UsageError(f"{self.key.label} cannot be used") from error

    def take_focus(self) -> None:
        """Focus the control."""
        self._control.focus()

    @on(Input.Changed)
    @on(TextArea.Changed)
    @on(Select.Changed)
    def _clear_fault(self) -> None:
        self._show_fault("")

    def _show_fault(self, fault: str) -> None:
        line = self.query_one(".fault", Static)
        line.update(Content(fault))
        line.display = bool(fault)


def _control(key: Key, value: str, default: str, choices: Sequence[str]) -> Control:
    """The widget that edits a key."""
    if key.kind is Kind.SWITCH or choices:
        options = _SWITCH if key.kind is Kind.SWITCH else [(name, name) for name in choices]
        return Select(options, value=value, allow_blank=False, compact=True, tooltip=key.comment)
    if key.name == "system":
        return PrintableTextArea(
            value,
            compact=True,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder=key.comment,
            tooltip=key.comment,
        )
    hint = f"{default}: {key.comment}" if default else key.comment
    return PrintableInput(value, hint, compact=True, tooltip=key.comment)
