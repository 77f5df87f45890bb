"""The one way to change a setting while the app runs: at once, and with an undo."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import Change, Changes
from app.settings import catalogue, file, presets
from app.settings.answering import PRESET, Answering
from app.settings.catalogue import BY_NAME, MODEL, PRESET_KEYS, SYSTEM, Kind, Part, Value
from app.settings.presets import Presets
from app.tools.toolbox import FILES, OFF, chosen_names
from backends.base import SpecchatError

_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+")

SEED, CONTEXT = "seed", "ctx"
SAVED_PRESET = "saved preset"
"""Not a setting: what is set to a name is a preset, to this chat's settings."""


class SettingsTarget(Protocol):
    """The app and its chat.

    check_setting refuses a value that cannot work, use_setting may too; check_model a model that
    is not on this machine.
    """

    @property
    def dialogue(self) -> Dialogue: ...
    @property
    def usual_context(self) -> int: ...
    def check_model(self, name: str) -> None: ...
    def setting(self, name: str) -> Value: ...
    def check_setting(self, name: str, value: Value) -> None: ...
    def use_setting(self, name: str, value: Value) -> None: ...
    def use_defaults(self, answering: Answering, system: str) -> None: ...
    def show_chat_settings(self) -> None: ...


@dataclass(eq=False)
class SettingsEditor:
    """Reads and changes settings. defaults, system: those of new chats. file: the settings file.

    A value of None stands for the default, and a seed of None for one that is drawn. One that
    cannot be used raises a SpecchatError, and changes nothing.
    """

    target: SettingsTarget
    changes: Changes
    defaults: Answering
    system: str
    file: Path
    presets: Presets

    def value(self, name: str) -> Value | None:
        if name == SYSTEM:
            return self.target.dialogue.system
        own = self.target.dialogue.own
        if name in (PRESET, SAVED_PRESET):
            return own.get(name, "")
        if BY_NAME[name].part is Part.CHAT:
            return own.get(name, self.default(name))
        return self.target.setting(name)

    def default(self, name: str) -> Value | None:
        if name == SYSTEM:
            return self.system
        if name in (PRESET, SAVED_PRESET, SEED):
            return None if name == SEED else ""
        if name == MODEL:  # whichever is used is remembered
            return self.target.setting(MODEL)
        if name == CONTEXT:
            return self.target.usual_context
        key = BY_NAME[name]
        return self.defaults.value(name) if key.part is Part.CHAT else key.default

    def differs(self, name: str) -> bool:
        return self.value(name) != self.default(name)

    def parsed(self, name: str, text: str) -> Value | None:
        """A typed value, None for the default."""
        key, text = BY_NAME[name], text.strip()
        if key.kind in (Kind.INTEGER, Kind.NUMBER):
            text = _number(text.removesuffix("tokens").strip())
        is_set = bool(text) or name == SYSTEM
        return catalogue.parsed(key, text) if is_set else None

    def change(self, name: str, value: Value | None) -> bool:
        """Change a setting at once; returns whether it changed."""
        wanted = self.default(name) if value is None else value
        if wanted == self.value(name):
            return False
        if name in (SYSTEM, PRESET) or BY_NAME[name].part is Part.CHAT:
            self._change_chat(name, value)
        else:
            self._change_app(name, value)
        return True

    def _change_chat(self, name: str, value: Value | None) -> None:
        dialogue = self.target.dialogue
        own, system, model, before = dict(dialogue.own), dialogue.system, "", ""
        if name == SYSTEM:
            system = str(value or "")
        elif name == PRESET:
            with suppress(SpecchatError):  # the instructions of the preset before go with it
                if system == self.presets.get(str(own.get(PRESET))).get(SYSTEM):
                    system = self.system
            chosen = self.presets.get(str(value)) if value else {SYSTEM: self.system}
            system, model = str(chosen.pop(SYSTEM, system)), str(chosen.pop(MODEL, ""))
            present = str(self.target.setting(MODEL))
            if model not in ("", present):
                with presets.of_preset(str(value)):
                    self.target.check_model(model)
                with suppress(SpecchatError):  # one that was named by its file stays unloaded
                    self.target.check_model(present)
                    before = present
            own = {**chosen, PRESET: str(value)} if value else {}
        else:
            own = {key: other for key, other in own.items() if key != name}
            own |= {} if value is None else {name: value}
        after, back = self._of_chat(own, system, model), self._of_chat(model=before)
        self._do(f"changed {_label(name)}", after, back)

    def save_preset(self, name: str) -> None:
        """Save instructions and settings of this chat as a preset, which it then has."""
        dialogue, path = self.target.dialogue, self.presets.path(name)
        kept = {key.name for key in PRESET_KEYS} & dialogue.own.keys()
        values = {one: dialogue.own[one] for one in sorted(kept)}
        if self.differs(SYSTEM):
            values = {SYSTEM: dialogue.system, **values}
        before, text = presets.content(path), self.presets.text(name, values)
        mark, unmark = self._of_chat({**dialogue.own, PRESET: name}), self._of_chat()

        def step(written: str | None, then: Callable[[], None]) -> None:
            presets.put(path, written)
            then()

        self._do(f"saved preset {name}", lambda: step(text, mark), lambda: step(before, unmark))

    def _of_chat(
        self, own: Mapping[str, Value] | None = None, system: str | None = None, model: str = ""
    ) -> Callable[[], None]:
        """A step of the chat shown now, and of no other, to these values or to its present ones.

        model: to be loaded too, unless it is.
        """
        dialogue = self.target.dialogue
        own = dict(dialogue.own if own is None else own)
        system = dialogue.system if system is None else system

        def step() -> None:
            if model and model != self.target.setting(MODEL):
                self.target.use_setting(MODEL, model)
            shown = self.target.dialogue
            changed = shown if shown.is_same_chat(dialogue) else dialogue
            changed.set_own(own)
            changed.set_system(system)
            self.target.show_chat_settings()

        return step

    def _change_app(self, name: str, value: Value | None) -> None:
        if value is not None:
            self.target.check_setting(name, value)
        kept = file.examined(self.file)[0].get(name)
        before, wanted = self.target.setting(name), self.default(name) if value is None else value
        assert wanted is not None

        def step(used: Value, stored: Value | None) -> None:
            previous = file.examined(self.file)[0].get(name)
            file.save(self.file, {name: stored})
            try:
                self.target.use_setting(name, used)
            except SpecchatError:
                file.save(self.file, {name: previous})
                raise

        self._do(f"changed {_label(name)}", lambda: step(wanted, value), lambda: step(before, kept))

    def make_default(self) -> None:
        """Make the settings of this chat those of new chats, also after the next start."""
        dialogue = self.target.dialogue
        own = {name: value for name, value in dialogue.own.items() if name != PRESET}
        before = file.examined(self.file)[0]
        changed = {**own, SYSTEM: dialogue.system}
        kept = {name: before.get(name) for name in changed}
        after = self._of_new_chats(self.defaults.changed(own), dialogue.system, changed)
        self._do(
            "changed the defaults", after, self._of_new_chats(self.defaults, self.system, kept)
        )

    def _of_new_chats(
        self, defaults: Answering, system: str, stored: Mapping[str, Value | None]
    ) -> Callable[[], None]:
        def step() -> None:
            file.save(self.file, stored)
            self.defaults, self.system = defaults, system
            self.target.use_defaults(defaults, system)

        return step

    def _do(self, name: str, do: Callable[[], None], undo: Callable[[], None]) -> None:
        do()
        self.changes.add(Change(name, undo, do))


def chosen_tools(typed: str, present: str, servers: Sequence[str]) -> str:
    """The setting of what a chat's model may call, after names; "NAME off" turns one off.

    Raises:
        UsageError: a name is none of a server, nor of the tools of our own.
    """
    chosen = chosen_names(typed)
    for name in chosen:
        catalogue.known(name, [*servers, FILES], f"no tools {name!r}")
    if chosen and OFF in typed.replace(",", " ").split():
        chosen = [one for one in chosen_names(present) if one not in chosen]
    return ", ".join(chosen) or OFF


def _number(text: str) -> str:
    """A typed number without the commas between thousands; another comma is a decimal point."""
    return text.replace(",", "" if _THOUSANDS.fullmatch(text) else ".")


def _label(name: str) -> str:
    return name if name == PRESET else BY_NAME[name].label.lower()
