"""One line of the settings screen: a label, what is set, and what is wrong with it."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Label, Select, Static, TextArea

from app import draft_spec
from app.settings import catalogue
from app.settings.catalogue import Key, Kind, Part, Value
from app.tui.prompt.ordered_keys import OrderedInput
from app.tui.prompt.text_fields import PrintableTextArea
from backends.base import SpecchatError, UsageError

_EMPTY_MEANS = {"draft": draft_spec.AUTO}
_SWITCH = (("yes", "true"), ("no", "false"))


class SettingField(Vertical):
    """The value of one key, as text. usual: what holds where the field is empty."""

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
        usual: str = "",
        choices: Sequence[str] = (),
        check: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(id=f"field-{key.name}")
        self.key = key
        self._given = value
        self._usual = usual
        self._choices = choices or key.choices
        self._check = check

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self.key.label)
            yield self._widget()
        yield Static(classes="fault")

    def _widget(self) -> Input | Select[str] | TextArea:
        key = self.key
        if key.kind is Kind.SWITCH or self._choices:
            options = (
                _SWITCH if key.kind is Kind.SWITCH else [(name, name) for name in self._choices]
            )
            return Select(
                options, value=self._given, allow_blank=False, compact=True, tooltip=key.comment
            )
        if key.name == "system":
            return PrintableTextArea(
                self._given,
                compact=True,
                tab_behavior="focus",
                highlight_cursor_line=False,
                placeholder=key.comment,
                tooltip=key.comment,
            )
        hint = f"{self._usual}: {key.comment}" if self._usual else key.comment
        return OrderedInput(self._given, placeholder=hint, compact=True, tooltip=key.comment)

    @property
    def text(self) -> str:
        """What stands in the field."""
        if self.query(Select):
            return str(self.query_one(Select).value)
        if self.query(TextArea):
            return self.query_one(TextArea).text
        return self.query_one(Input).value.strip()

    @text.setter
    def text(self, text: str) -> None:
        if self.query(TextArea):
            self.query_one(TextArea).text = text
        elif self.query(Input):
            self.query_one(Input).value = text

    @property
    def is_changed(self) -> bool:
        """Whether another value stands there than at first."""
        return self.text != self._given

    def value(self) -> Value | None:
        """The value; None for an empty field of a chat, where the usual one holds.

        Raises:
            UsageError: it cannot be used; the field tells so itself.
        """
        self._tell("")
        text = self.text or _EMPTY_MEANS.get(self.key.name, "")
        if not text and self.key.part is Part.CHAT:
            return None
        try:
            if self._check is not None and self.is_changed:
                self._check(text)
            return catalogue.parsed(self.key, text)
        except SpecchatError as error:
            self._tell(error.why or error.what)
            raise UsageError(f"{self.key.label} cannot be used") from error

    def take_focus(self) -> None:
        """Have the user type here."""
        self.query_one("Input, Select, TextArea").focus()

    @on(Input.Changed)
    @on(TextArea.Changed)
    @on(Select.Changed)
    def _changed(self) -> None:
        """What was wrong may be right by now."""
        self._tell("")

    def _tell(self, fault: str) -> None:
        line = self.query_one(".fault", Static)
        line.update(Content(fault))
        line.display = bool(fault)
