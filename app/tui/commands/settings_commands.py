"""Commands that change settings, for this chat or for every chat."""

from dataclasses import dataclass
from typing import Any

from textual.app import App

from app.dialogue.changes import Changes
from app.dialogue.settings_editor import SettingsEditor
from app.settings import catalogue
from app.settings.answering import PRESET
from app.settings.catalogue import APP_KEYS, BY_NAME, CHAT_KEYS, Part
from app.tui.commands.command import Perform
from app.tui.screens.settings_screen import SettingsScreen
from app.tui.store import Store
from backends.base import UsageError

_AT_START = "it takes effect when specchat starts"
_NO_PRESET = "off"


@dataclass(frozen=True, slots=True)
class SettingsCommands:
    """The settings screen, presets, and single settings."""

    app: App[Any]
    settings_editor: SettingsEditor
    changes: Changes
    store: Store
    perform: Perform

    def settings(self) -> None:
        self.app.push_screen(SettingsScreen(self.settings_editor, self.changes), self._list)

    async def _list(self, name: str | None) -> None:
        if name:
            await self.perform(name, "")

    def preset(self, name: str) -> None:
        presets = self.settings_editor.presets
        if not name:
            known = ", ".join(presets) or f"none; {self.store.preferences.file} defines them"
            raise UsageError("which preset?", known)
        if name == _NO_PRESET and name not in presets:
            self.settings_editor.change(PRESET, None)
        else:
            known = catalogue.known(name, presets, f"there is no preset {name!r}")
            self.settings_editor.change(PRESET, known)

    def set(self, argument: str) -> None:
        name, _, text = argument.partition(" ")
        if not name:
            keys = ", ".join(key.name for key in (*CHAT_KEYS, *APP_KEYS))
            raise UsageError("which setting?", keys, "Example: /set temperature 0.2")
        key = BY_NAME[catalogue.known(name, BY_NAME, f"there is no setting {name!r}")]
        if key.part is Part.START and name != "ctx":
            raise UsageError(f"{name} cannot be set here", _AT_START)
        self.settings_editor.change_text(key.name, text)

    def context(self, size: str) -> None:
        if not size:
            raise UsageError("how many tokens?", "", "Example: /context 8192")
        self.settings_editor.change_text("ctx", size)

    def theme(self, name: str) -> None:
        if name:
            self.settings_editor.change("theme", name)
        else:
            self.app.search_themes()
