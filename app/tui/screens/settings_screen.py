"""The settings page: settings of this chat, and of the app."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Select, Static, TextArea

from app.printable import one_line
from app.settings.answering import PRESET, Answering
from app.settings.catalogue import APP_KEYS, CHAT_KEYS, PRESET_KEYS, Value
from app.tui.screens.setting_field import SettingField
from app.tui.typed_app import typed_app
from backends.base import SpecchatError, UsageError

_NO_PRESET = ""


@dataclass(frozen=True, slots=True)
class CurrentSettings:
    """The current settings. own: of this chat alone. defaults: the defaults of all chats.

    checks: validators of keys whose values are more than a kind and a range; they raise
    SpecchatError.
    """

    system: str
    own: Mapping[str, Value]
    defaults: Answering
    app: Mapping[str, Value]
    presets: Mapping[str, Mapping[str, Value]]
    checks: Mapping[str, Callable[[str], object]]


@dataclass(frozen=True, slots=True)
class ChosenSettings:
    """The settings the user chose. app: changed ones only. keep: save them as defaults too."""

    system: str
    own: Mapping[str, Value]
    app: Mapping[str, Value]
    keep: bool


class SettingsScreen(ModalScreen[bool]):
    """Returns whether settings were applied.

    use: applies the chosen settings, or raises SpecchatError, which keeps the screen open.
    """

    app = typed_app
    BINDINGS: ClassVar = [
        Binding("escape", "leave", "Cancel"),
        Binding("ctrl+s", "finish(True)", "Save as defaults"),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    SettingsScreen { align: center middle; }
    SettingsScreen #page {
        width: 100%; max-width: 90; height: 100%; max-height: 34; border: round $primary;
        background: $surface; padding: 0 1;
    }
    SettingsScreen .part { text-style: bold; width: 100%; margin: 1 0 0 0; }
    SettingsScreen #preset Label { width: 16; }
    SettingsScreen #preset Select { width: 1fr; }
    SettingsScreen #preset, SettingsScreen #buttons { height: auto; }
    SettingsScreen #buttons Button { min-width: 8; margin: 0 1 0 0; }
    SettingsScreen #fault { height: auto; color: $text-error; }
    """

    def __init__(self, current: CurrentSettings, use: Callable[[ChosenSettings], None]) -> None:
        super().__init__()
        self._settings = current
        self._use = use
        self._theme = str(current.app["theme"])
        name = str(current.own.get(PRESET, ""))
        self._preset = name if name in current.presets else _NO_PRESET

    def compose(self) -> ComposeResult:
        with Vertical(id="page"):
            with VerticalScroll(can_focus=False):
                yield Label("This chat", classes="part")
                presets = [(Text(one_line(name)), name) for name in self._settings.presets]
                with Horizontal(id="preset"):
                    yield Label("Preset")
                    yield Select(
                        [("none", _NO_PRESET), *presets],
                        value=self._preset,
                        allow_blank=False,
                        compact=True,
                    )
                yield from self._chat_fields()
                yield Label("All chats", classes="part")
                yield from self._app_fields()
            yield Static(id="fault")
            with Horizontal(id="buttons"):
                yield Button("Use", id="use", variant="primary", compact=True)
                yield Button("Save as defaults", id="save", compact=True)
                yield Button("Cancel", id="leave", compact=True)

    def _chat_fields(self) -> ComposeResult:
        current = self._settings
        for key in CHAT_KEYS:
            if key.name == "system":
                yield SettingField(key, current.system)
                continue
            default = "random" if key.name == "seed" else str(current.defaults.value(key.name))
            yield SettingField(key, str(current.own.get(key.name, "")), default)

    def _app_fields(self) -> ComposeResult:
        current = self._settings
        for key in APP_KEYS:
            value = current.app[key.name]
            text = str(value).lower() if isinstance(value, bool) else str(value)
            choices = sorted(self.app.available_themes) if key.name == "theme" else ()
            yield SettingField(key, text, "", choices, current.checks.get(key.name))

    def on_mount(self) -> None:
        page = self.query_one("#page")
        page.border_title = "Settings"
        page.border_subtitle = "Enter: use · Ctrl+S: save · Esc: cancel"
        self.query_one("#field-system TextArea").focus()

    def _field(self, name: str) -> SettingField:
        return self.query_one(f"#field-{name}", SettingField)

    @on(Select.Changed, "#preset Select")
    def _fill_in(self, event: Select.Changed) -> None:
        name = str(event.value)
        if name == self._preset:
            return
        self._preset = name
        values = self._settings.presets.get(name, {})
        for key in PRESET_KEYS:
            if key.name != "system":
                self._field(key.name).text = str(values.get(key.name, ""))
        if "system" in values:
            self._field("system").text = str(values["system"])

    @on(Select.Changed, "#field-theme Select")
    def _preview(self, event: Select.Changed) -> None:
        self.app.theme = str(event.value)

    @on(Input.Changed)
    @on(TextArea.Changed)
    @on(Select.Changed)
    def _clear_fault(self) -> None:
        self.query_one("#fault", Static).update("")

    @on(Input.Submitted)
    @on(Button.Pressed, "#use")
    def _use_pressed(self) -> None:
        self.action_finish(False)

    @on(Button.Pressed, "#save")
    def _save_pressed(self) -> None:
        self.action_finish(True)

    @on(Button.Pressed, "#leave")
    def action_leave(self) -> None:
        """Close the screen without changing anything."""
        self.app.theme = self._theme
        self.dismiss(False)

    def action_finish(self, keep: bool) -> None:
        """Apply the settings if all are valid; keep: also save them."""
        try:
            self._use(self._chosen(keep))
        except SpecchatError as error:
            self.query_one("#fault", Static).update(Content(str(error)))
            return
        self.dismiss(True)

    def _chosen(self, keep: bool) -> ChosenSettings:
        values = self._values()
        app = {
            field.key.name: value
            for field, value in values.items()
            if field.key in APP_KEYS and field.is_changed
        }
        own = {
            field.key.name: value
            for field, value in values.items()
            if field.key in CHAT_KEYS and field.key.name != "system"
        }
        if self._preset != _NO_PRESET:
            own[PRESET] = self._preset
        return ChosenSettings(self._field("system").text.strip(), own, app, keep)

    def _values(self) -> dict[SettingField, Value]:
        """The values of the fields that are not empty.

        Raises:
            UsageError: a value is invalid; the first such field has the focus.
        """
        values: dict[SettingField, Value] = {}
        faults: dict[SettingField, UsageError] = {}
        for field in self.query(SettingField):
            try:
                value = field.value()
            except UsageError as fault:
                faults[field] = fault
            else:
                if value is not None:
                    values[field] = value
        if faults:
            next(iter(faults)).take_focus()
            raise UsageError("; ".join(str(fault) for fault in faults.values()))
        return values
