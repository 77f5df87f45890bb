"""Commands that change settings, for this chat or for every chat, and bring them into effect."""

from dataclasses import replace
from functools import cached_property
from typing import Any

from app.dialogue.dialogue import Dialogue
from app.dialogue.settings_editor import SettingsEditor, chosen_tools
from app.loading.placement import check_new_context
from app.loading.session_options import DEFAULT_CONTEXT
from app.printable import one_line
from app.settings import catalogue
from app.settings.answering import PRESET, Answering
from app.settings.catalogue import BY_NAME, SETTABLE, Key, Kind, Value
from app.settings.in_effect import NAMES, settings_in_effect
from app.settings.presets import NO_PRESET, Presets
from app.tools.mcp_servers import Servers
from app.tools.toolbox import FILES, OFF, chosen_names
from app.tui.commands.app import ModelCommands
from app.tui.keymap import THEMES, check_theme
from app.tui.lists import PickScreen
from app.tui.look import DARK, LIGHT
from backends.base import UsageError
from backends.chat.reply_form import EFFORTS

_AT_START = "it takes effect when specchat starts"
_OFF = "off"
_SHOWN_ELSEWHERE = ("model", "draft")
"""Settings that may have to be downloaded or loaded first, of which the screen tells."""


class SettingsCommands(ModelCommands):
    @cached_property
    def settings_editor(self) -> SettingsEditor:
        preferences, view = self.store.preferences, self.view
        system = view.dialogue.default_system
        presets = Presets.of(self.engine.paths)
        return SettingsEditor(self, self.changes, view.defaults, system, preferences.file, presets)

    def settings(self) -> None:
        from app.tui.screens.settings import SettingsScreen

        self.choose(SettingsScreen(self.settings_editor, self.changes))

    def preset(self, name: str) -> None:
        """Use a preset; without a name a list of them is shown."""
        presets = self.settings_editor.presets
        if not name:
            rows = {one: (one, presets.about(one)) for one in presets.names()}
            used = str(self.settings_editor.value(PRESET))
            none = NO_PRESET, "The usual instructions and settings"
            self.choose(PickScreen("Presets", {**rows, NO_PRESET: none}, used), "preset")
        elif name == NO_PRESET and name not in presets.names():
            self.settings_editor.change(PRESET, None)
            self.app.notify("No preset.")
        else:
            self.settings_editor.change(PRESET, name)
            self._confirm("Preset", name)

    def set(self, argument: str) -> None:
        name, _, text = argument.partition(" ")
        if not name:
            raise UsageError("which setting?", "", "Example: /set temperature 0.2; F8 lists all")
        if name in BY_NAME and name not in SETTABLE:
            raise UsageError(f"{name} cannot be set here", _AT_START)
        self._change(BY_NAME[catalogue.known(name, SETTABLE, f"no setting {name!r}")], text)

    def context(self, size: str) -> None:
        if not size:
            raise UsageError("how many tokens?", "", "Example: /context 8192")
        self._change(BY_NAME["ctx"], size)

    def think(self, how: str) -> None:
        """Set how much the model thinks, or after how many tokens that is ended."""
        is_budget = how.replace(",", "").isdecimal()
        if how and not is_budget and how not in EFFORTS:
            raise UsageError(
                f"thinking cannot be {how!r}. Known: {', '.join(EFFORTS)}, or a number of tokens"
            )
        if not how:
            self.settings_editor.change(catalogue.THINK_BUDGET, None)
        self._change(BY_NAME[catalogue.THINK_BUDGET if is_budget else catalogue.THINK], how)
        loaded = self.engine.status.loaded
        if loaded is not None and not loaded.can_think:
            self.app.notify(f"{one_line(loaded.name)} has no thinking mode; other models have one.")

    def tools(self, names: str) -> None:
        """Choose what the model of this chat may call; from a list, one more or less."""
        view = self.view
        present = chosen_names(view.answering.tools)
        servers = Servers(self.engine.paths.servers).names()
        if not names:
            about = {FILES: "read, list and search attached folders; never asks"}
            about |= dict.fromkeys(servers, "a server of mcp.json; each call asks")
            about = {one: told for one, told in about.items() if one not in present}
            rows = {", ".join([*present, one]): (one, told) for one, told in about.items()}
            rows |= {f"{one} {OFF}": (one, "on; Enter turns it off") for one in present}
            rows[OFF] = OFF, "no tools"
            self.choose(PickScreen("Tools", rows, "" if present else OFF), "tools")
            return
        chosen = chosen_tools(names, view.answering.tools, servers)
        view.toolbox.retry(names)
        self._change(BY_NAME[catalogue.TOOLS], chosen)
        if FILES in chosen_names(chosen) and not view.dialogue.folder:
            self.app.notify("No folder is attached yet: /folder FOLDER attaches one.")

    def theme(self, name: str) -> None:
        if name:
            self.settings_editor.change("theme", name)
            self._confirm("Theme", name)
        else:
            present = self.store.preferences.theme
            names = dict.fromkeys((present, DARK, LIGHT, *sorted(THEMES)))
            items = {one: (one, "") for one in names}
            self.choose(PickScreen("Themes", items, present, self._try_theme), "theme")

    def _try_theme(self, name: str) -> None:
        self.app.theme = name

    def _change(self, key: Key, text: str) -> None:
        self.settings_editor.change(key.name, self.settings_editor.parsed(key.name, text))
        if key.name not in _SHOWN_ELSEWHERE:
            value = self.settings_editor.value(key.name)
            shown = f"{value:,}" if key.kind is Kind.NUMBER else text.strip()
            self._confirm(key.label, shown if text else "the default")

    def _confirm(self, what: str, value: str) -> None:
        self.app.notify(f"{what}: {one_line(value)}")

    def system(self, text: str) -> None:
        """Set the instructions of this chat; without a text the settings open."""
        if not text:
            self.settings()
            return
        is_off = text.lower() == _OFF
        self.settings_editor.change("system", "" if is_off else text)
        if is_off:  # others are seen at the top of the chat
            self.app.notify("No instructions.")

    # What the settings are settings of

    @property
    def dialogue(self) -> Dialogue:
        return self.view.dialogue

    def setting(self, name: str) -> Value:
        """A setting of every chat that is in effect."""
        if name in NAMES:
            return getattr(self.store.preferences, name)
        if name == "draft":
            return self.engine.draft
        loaded = self.engine.status.loaded
        if name == "ctx":
            chosen = self.engine.options.ctx or DEFAULT_CONTEXT
            return loaded.context_size if loaded else chosen
        if name == "model":
            return loaded.name if loaded else self.engine.options.model or ""
        return settings_in_effect(self.engine.paths).values.get(name, BY_NAME[name].default)

    @property
    def usual_context(self) -> int:
        """Tokens of context where none are set: fewer where the model or the memory has less."""
        loaded, options = self.engine.status.loaded, self.engine.options
        if loaded is None:
            return DEFAULT_CONTEXT
        if options.ctx is None:
            return loaded.context_size
        return min(loaded.info.context_limit, DEFAULT_CONTEXT)

    def check_model(self, name: str) -> None:
        """Refuse a model that is not on this machine, unless a server has it."""
        from backends.engines.backend_selection import REMOTE

        if self.engine.options.backend != REMOTE:
            self.local(name)

    def check_setting(self, name: str, value: Value) -> None:
        if name == "ctx":
            loaded, options = self.engine.status.loaded, self.engine.options
            info = loaded.info if loaded and not loaded.is_remote else None
            present = loaded.context_size if loaded else 0
            check_new_context(int(value), info, present, options.gpu_layers)

    def use_setting(self, name: str, value: Value) -> None:
        """Bring a setting of every chat into effect at once."""
        if name == "theme":
            check_theme(str(value))
        if name in NAMES:
            changed: dict[str, Any] = {name: value}
            self.store.preferences = replace(self.store.preferences, **changed)
        elif name == "model":
            self.model(str(value))
        elif name == "draft":
            self.use_draft(str(value))
        elif name == "ctx":
            self.engine.set_context(None if value == self.usual_context else int(value))
            self.view.call_later(self.view.clear_fault)  # it may have been about the old size

    def use_defaults(self, answering: Answering, system: str) -> None:
        self.view.defaults = answering
        self.view.dialogue.default_system = system

    def show_chat_settings(self) -> None:
        self.view.show_settings()
