"""Settings by slash command, and what the settings screen does when it is left."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from app import draft_spec
from app.paths import Paths
from app.settings import catalogue, file
from app.settings.answering import PRESET
from app.settings.catalogue import APP_KEYS, BY_NAME, CHAT_KEYS, Part, Value
from app.tui import appearance
from app.tui.commands import model_commands
from app.tui.screens.settings_screen import Chosen, Given, SettingsScreen
from backends.base import UsageError
from models.reference import resolve

if TYPE_CHECKING:
    from app.tui.screens.chat_screen import ChatScreen

_AT_START = "it takes effect when specchat starts"
_NO_PRESET = "off"


async def _settings(screen: "ChatScreen", argument: str) -> None:
    paths = Paths.of_this_user()

    def draft(text: str) -> object:
        return draft_spec.parse(text, paths)

    def model(text: str) -> object:
        return resolve(text, paths.models) if text else None

    preferences = screen.preferences
    given = Given(
        system=screen.dialogue.system,
        own=screen.dialogue.own,
        usual=screen.defaults,
        app={
            "model": screen.engine.options.model or "",
            "draft": screen.engine.draft,
            "theme": screen.app.theme,
            "animations": preferences.animations,
            "enter_sends": preferences.enter_sends,
            "panel": preferences.panel,
        },
        presets=preferences.presets,
        checks={"model": model, "draft": draft},
    )
    screen.app.push_screen(SettingsScreen(given, lambda chosen: _use(screen, chosen)))


def _use(screen: "ChatScreen", chosen: Chosen) -> None:
    if chosen.keep:
        _save(screen, chosen)
    screen.dialogue.set_system(chosen.system)
    screen.dialogue.set_own(chosen.own)
    for name in ("model", "draft"):
        if chosen.app.get(name):
            screen.run_worker(screen.action_perform(name, str(chosen.app[name])))
    appearance.change(screen, chosen.app)


def _save(screen: "ChatScreen", chosen: Chosen) -> None:
    path = screen.preferences.file
    before = file.read(path)
    wanted = {**chosen.own, **chosen.app, "system": chosen.system}
    wanted.pop(PRESET, None)
    changes = {
        name: value
        for name, value in wanted.items()
        if value != before.get(name, "" if name == "system" else None)
    }
    file.save(path, changes)
    screen.defaults = screen.defaults.changed(chosen.own)
    screen.notify(f"Saved in {path}")


async def _preset(screen: "ChatScreen", argument: str) -> None:
    presets = screen.preferences.presets
    if not argument:
        names = ", ".join(presets) or f"none; they stand in {screen.preferences.file}"
        screen.notify(f"Presets: {names}")
        return
    if argument == _NO_PRESET and argument not in presets:
        screen.dialogue.set_own({})
        screen.notify("This chat has the usual settings.")
        return
    name = catalogue.known(argument, presets, f"there is no preset {argument!r}")
    own = {key: value for key, value in presets[name].items() if key != "system"}
    screen.dialogue.set_own({**own, PRESET: name})
    if "system" in presets[name]:
        screen.dialogue.set_system(str(presets[name]["system"]))
    screen.notify(f"Preset: {name}")


async def _set(screen: "ChatScreen", argument: str) -> None:
    name, _, text = argument.partition(" ")
    text = text.strip()
    if not name:
        listed = ", ".join(key.name for key in (*CHAT_KEYS, *APP_KEYS))
        raise UsageError("what is to be set?", listed, "Example: /set temperature 0.2")
    key = BY_NAME[catalogue.known(name, BY_NAME, f"there is no setting {name!r}")]
    if key.part is Part.START:
        raise UsageError(f"{name} cannot be set here", _AT_START, "The settings file has it too.")
    if not text and key.part is Part.APP:
        raise UsageError(f"{name} to what?", key.comment)
    value = catalogue.parsed(key, text) if text else None
    if name in ("draft", "model"):
        await model_commands.COMMANDS[name](screen, text)
        return
    if key.part is Part.APP and value is not None:
        appearance.change(screen, {name: value})
    elif name == "system":
        screen.dialogue.set_system(text)
    else:
        _set_own(screen, name, value)
    screen.notify(f"{key.label}: {text or 'as usual'}")


def _set_own(screen: "ChatScreen", name: str, value: Value | None) -> None:
    own = {key: one for key, one in screen.dialogue.own.items() if key != name}
    screen.dialogue.set_own(own if value is None else {**own, name: value})


async def _theme(screen: "ChatScreen", argument: str) -> None:
    if argument:
        appearance.change(screen, {"theme": argument})
    else:
        screen.app.search_themes()


COMMANDS: dict[str, Callable[["ChatScreen", str], Awaitable[None]]] = {
    "settings": _settings,
    "preset": _preset,
    "set": _set,
    "theme": _theme,
}
