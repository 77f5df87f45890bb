"""Commands that change settings, for this chat or for every chat."""

from dataclasses import dataclass
from typing import Any

from textual.app import App

from app.dialogue.changes import Changes
from app.dialogue.settings_editor import SettingsEditor
from app.printable import one_line
from app.settings import catalogue
from app.settings.answering import PRESET
from app.settings.catalogue import BY_NAME, Key, Kind, Part
from app.tui.commands.command import Perform
from app.tui.store import Store
from backends.base import UsageError

_AT_START = "it takes effect when specchat starts"
_NO_PRESET = "off"
_SHOWN_ELSEWHERE = ("model", "draft")
"""Settings that may have to be downloaded or loaded first, of which the screen tells."""
_SETTABLE = tuple(
    key.name for key in catalogue.KEYS if key.part is not Part.START or key.name == "ctx"
)
_LABELS = {"ctx": "Context size"}


def _unknown(name: str) -> UsageError:
    what = f"there is no setting {name!r}"
    if near := catalogue.nearest(name, _SETTABLE):
        return UsageError(what, f"nearest: {', '.join(near)}")
    return UsageError(what, "", "F8 lists all")


@dataclass(frozen=True, slots=True)
class SettingsCommands:
    """The settings screen, presets, and single settings."""

    app: App[Any]
    settings_editor: SettingsEditor
    changes: Changes
    store: Store
    perform: Perform

    def settings(self) -> None:
        from app.tui.screens.settings_screen import SettingsScreen  # when it is opened

        self.app.push_screen(SettingsScreen(self.settings_editor, self.changes), self._list)

    async def _list(self, name: str | None) -> None:
        if name:
            await self.perform(name, "")

    def preset(self, name: str) -> None:
        presets = self.settings_editor.presets
        if not name:
            if not presets:
                file = self.store.preferences.file
                raise UsageError("there are no presets", f"define them in {file}")
            raise UsageError("which preset?", ", ".join(presets))
        if name == _NO_PRESET and name not in presets:
            self.settings_editor.change(PRESET, None)
            self.app.notify("No preset.")
        else:
            known = catalogue.known(name, presets, f"there is no preset {name!r}")
            self.settings_editor.change(PRESET, known)
            self._confirm("Preset", known)

    def set(self, argument: str) -> None:
        name, _, text = argument.partition(" ")
        if not name:
            raise UsageError("which setting?", "", "Example: /set temperature 0.2; F8 lists all")
        if name not in BY_NAME:
            raise _unknown(name)
        key = BY_NAME[name]
        if name not in _SETTABLE:
            raise UsageError(f"{name} cannot be set here", _AT_START)
        self._change(key, text)

    def context(self, size: str) -> None:
        if not size:
            raise UsageError("how many tokens?", "", "Example: /context 8192")
        self._change(BY_NAME["ctx"], size)

    def theme(self, name: str) -> None:
        if name:
            self.settings_editor.change("theme", name)
            self._confirm("Theme", name)
        else:
            self.app.search_themes()

    def _change(self, key: Key, text: str) -> None:
        """Change a setting to what was typed, and say what it now is."""
        self.settings_editor.change_text(key.name, text)
        if key.name not in _SHOWN_ELSEWHERE:
            value = self.settings_editor.value(key.name)
            shown = f"{value:,}" if key.kind is Kind.NUMBER else text.strip()
            self._confirm(_LABELS.get(key.name, key.label), shown if text else "the default")

    def _confirm(self, what: str, value: str) -> None:
        self.app.notify(f"{what}: {one_line(value)}")
