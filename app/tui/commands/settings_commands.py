"""Commands that change settings, for this chat or for the app."""

from dataclasses import dataclass
from typing import Any

from textual.app import App

from app.drafting.spec import draft_spec
from app.engine.engine import Engine
from app.settings import catalogue, file
from app.settings.answering import PRESET
from app.settings.catalogue import APP_KEYS, BY_NAME, CHAT_KEYS, Part, Value
from app.tui.appearance import Appearance
from app.tui.commands.command import Perform
from app.tui.commands.model_commands import ModelCommands
from app.tui.conversation.chat_view import ChatView
from app.tui.screens.settings_screen import ChosenSettings, CurrentSettings, SettingsScreen
from backends.base import UsageError
from models.reference import resolve

_AT_START = "it takes effect when specchat starts"
_NO_PRESET = "off"


@dataclass(frozen=True, slots=True)
class SettingsCommands:
    """The settings screen, presets, and single settings."""

    app: App[Any]
    engine: Engine
    view: ChatView
    appearance: Appearance
    models: ModelCommands
    perform: Perform

    def settings(self) -> None:
        paths, preferences = self.engine.paths, self.appearance.preferences
        dialogue = self.view.dialogue
        current = CurrentSettings(
            system=dialogue.system,
            own=dialogue.own,
            defaults=self.view.defaults,
            app={
                "model": self.engine.options.model or "",
                "draft": self.engine.draft,
                "theme": self.app.theme,
                "animations": preferences.animations,
                "enter_sends": preferences.enter_sends,
                "panel": preferences.panel,
            },
            presets=preferences.presets,
            checks={
                "model": lambda text: resolve(text, paths.models) if text else None,
                "draft": lambda text: draft_spec.parse(text, paths),
            },
        )
        self.app.push_screen(SettingsScreen(current, self._use))

    def _use(self, chosen: ChosenSettings) -> None:
        if chosen.keep:
            self._save(chosen)
        self.view.dialogue.set_system(chosen.system)
        self.view.dialogue.set_own(chosen.own)
        for name in ("model", "draft"):
            if chosen.app.get(name):
                self.app.call_later(self.perform, name, str(chosen.app[name]))
        self.appearance.change(chosen.app)

    def _save(self, chosen: ChosenSettings) -> None:
        path = self.appearance.preferences.file
        before = file.read(path)
        wanted = {**chosen.own, **chosen.app, "system": chosen.system}
        wanted.pop(PRESET, None)
        changes = {
            name: value
            for name, value in wanted.items()
            if value != before.get(name, "" if name == "system" else None)
        }
        file.save(path, changes)
        self.view.defaults = self.view.defaults.changed(chosen.own)
        self.app.notify(f"Saved in {path}")

    def preset(self, name: str) -> None:
        presets, dialogue = self.appearance.preferences.presets, self.view.dialogue
        if not name:
            path = self.appearance.preferences.file
            self.app.notify(f"Presets: {', '.join(presets) or f'none; define them in {path}'}")
            return
        if name == _NO_PRESET and name not in presets:
            dialogue.set_own({})
            self.app.notify("This chat uses the default settings.")
            return
        known = catalogue.known(name, presets, f"there is no preset {name!r}")
        own = {key: value for key, value in presets[known].items() if key != "system"}
        dialogue.set_own({**own, PRESET: known})
        if "system" in presets[known]:
            dialogue.set_system(str(presets[known]["system"]))
        self.app.notify(f"Preset: {known}")

    def set(self, argument: str) -> None:
        name, _, text = argument.partition(" ")
        text = text.strip()
        if not name:
            keys = ", ".join(key.name for key in (*CHAT_KEYS, *APP_KEYS))
            raise UsageError("which setting?", keys, "Example: /set temperature 0.2")
        key = BY_NAME[catalogue.known(name, BY_NAME, f"there is no setting {name!r}")]
        if key.part is Part.START:
            remedy = "Set it in the settings file."
            raise UsageError(f"{name} cannot be set here", _AT_START, remedy)
        if not text and key.part is Part.APP:
            raise UsageError(f"which value for {name}?", key.comment)
        value = catalogue.parsed(key, text) if text else None
        if name == "model":
            self.models.model(text)
            return
        if name == "draft":
            self.models.draft(text)
            return
        if key.part is Part.APP and value is not None:
            self.appearance.change({name: value})
        elif name == "system":
            self.view.dialogue.set_system(text)
        else:
            self._set_own(name, value)
        self.app.notify(f"{key.label}: {text or 'default'}")

    def _set_own(self, name: str, value: Value | None) -> None:
        dialogue = self.view.dialogue
        others = {key: other for key, other in dialogue.own.items() if key != name}
        dialogue.set_own(others if value is None else {**others, name: value})

    def theme(self, name: str) -> None:
        if name:
            self.appearance.change({"theme": name})
        else:
            self.app.search_themes()
