"""Key bindings and theme of the user, validated before Textual gets them."""

import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys
from textual.theme import BUILTIN_THEMES
from textual.widgets import TextArea

from app.actions import ACTIONS, BY_NAME, Action
from app.settings import catalogue
from app.settings.in_effect import Preferences
from app.tui.look import DARK, LIGHT
from backends.base import UsageError

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "meta", "hyper"})
_NAMED = frozenset(key.value for key in Keys) | frozenset(KEY_NAME_REPLACEMENTS.values())
_FIRST_SYMBOL = 0x2000
"""The first character that is on no keyboard's own keys."""

_RESERVED = frozenset(
    {"enter", "shift+enter", "ctrl+j", "tab", "shift+tab", "space", "ctrl+p", "super+c"}
).union(*(binding.key.split(",") for binding in TextArea.BINDINGS if isinstance(binding, Binding)))
"""Keys of the prompt and the palette."""


def keys_of(action: Action, keys: Mapping[str, str]) -> str:
    """The keys of an action, separated by commas; keys: the user's own, by action."""
    return ",".join(_split(keys.get(action.name, action.keys)))


def sending_key(preferences: Preferences) -> str:
    return "Enter" if preferences.enter_sends else "Ctrl+J"


def _split(keys: str) -> list[str]:
    return [key.strip().lower() for key in keys.split(",")]


def usable_keys(
    keys: Mapping[str, str], file: Path
) -> tuple[dict[str, str], tuple[UsageError, ...]]:
    """The key bindings that can work, and why the others cannot.

    A binding cannot work if a key is unknown or reserved by the prompt, or if another action has
    the key; its action then has its usual keys.
    """
    usable, faults = dict(keys), list[UsageError]()
    for name in keys:
        try:
            _check_binding(name, keys[name], file)
        except UsageError as error:
            faults.append(error)
            del usable[name]
    while clash := _clash(usable, file):
        name, error = clash
        faults.append(error)
        del usable[name]
    return usable, tuple(faults)


def _check_binding(name: str, keys: str, file: Path) -> None:
    for key in set(_split(keys)) - set(BY_NAME[name].keys.split(",")):
        _check(key, f"keys.{name} in {file} cannot be {key!r}")


def _clash(keys: Mapping[str, str], file: Path) -> tuple[str, UsageError] | None:
    """A binding of the user that gives a key to a second action, and the error about it."""
    owners = {"ctrl+q": "quit"}  # always bound by Textual
    for action in ACTIONS:
        for key in filter(None, keys_of(action, keys).split(",")):
            owner = owners.setdefault(key, action.name)
            if owner != action.name:
                name = action.name if action.name in keys else owner
                what = f"{file} gives the key {key!r} to two actions"
                remedy = "Give one of them another key under [keys]."
                return name, UsageError(what, f"{owner} and {action.name}", remedy)
    return None


def _check(key: str, what: str) -> None:
    *modifiers, base = key.split("+")
    if not _MODIFIERS.issuperset(modifiers) or not _is_key(base):
        raise UsageError(what, "there is no such key", 'Keys are written "ctrl+n", "f10", "alt+o".')
    if key in _RESERVED or (len(base) == 1 and not set(modifiers) - {"shift"}):
        raise UsageError(what, "the prompt or the palette uses that key")


def _is_key(name: str) -> bool:
    if len(name) == 1:
        return True
    if name in _NAMED:
        return "+" not in name and "<" not in name
    try:
        character = unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return False
    return ord(character) < _FIRST_SYMBOL  # "banana" is a character too


THEMES = (DARK, LIGHT, *sorted(BUILTIN_THEMES))
"""Names of all themes, the app's own first."""


def check_theme(name: str) -> str:
    """Return the name of a theme. Raises UsageError: there is none; it names the nearest."""
    return catalogue.known(name, THEMES, f"no theme {name!r}")


def usable_preferences(preferences: Preferences) -> tuple[Preferences, tuple[UsageError, ...]]:
    """The preferences that can work, and why the others cannot."""
    keys, faults = usable_keys(preferences.keys, preferences.file)
    preferences = replace(preferences, keys=keys)
    try:
        check_theme(preferences.theme)
    except UsageError as error:
        return replace(preferences, theme=DARK), (*faults, error)
    return preferences, faults
