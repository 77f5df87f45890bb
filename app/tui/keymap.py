"""Key bindings of the user, validated before Textual gets them."""

import unicodedata
from collections.abc import Mapping
from pathlib import Path

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys
from textual.widgets import TextArea

from app.actions import ACTIONS, Action
from backends.base import UsageError

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "meta", "hyper"})
_NAMED = frozenset(key.value for key in Keys) | frozenset(KEY_NAME_REPLACEMENTS.values())
_RESERVED = frozenset(
    {"enter", "shift+enter", "ctrl+j", "tab", "shift+tab", "space", "ctrl+p", "super+c"}
).union(*(binding.key.split(",") for binding in TextArea.BINDINGS if isinstance(binding, Binding)))
"""Keys of the prompt and the palette."""


def keys_of(action: Action, keys: Mapping[str, str]) -> str:
    """The keys of an action, separated by commas; keys: the user's own, by action."""
    return ",".join(key.strip().lower() for key in keys.get(action.name, action.keys).split(","))


def check_keys(keys: Mapping[str, str], file: Path) -> None:
    """Reject key bindings that would not work.

    Raises:
        UsageError: a key is unknown or reserved by the prompt, or two actions share one.
    """
    owners = {"ctrl+q": "quit"}  # always bound by Textual
    for action in ACTIONS:
        for key in filter(None, keys_of(action, keys).split(",")):
            if action.name in keys and key not in action.keys.split(","):
                _check(key, f"keys.{action.name} in {file} cannot be {key!r}")
            owner = owners.setdefault(key, action.name)
            if owner != action.name:
                what = f"{file} gives the key {key!r} to two actions"
                remedy = "Give one of them another key under [keys]."
                raise UsageError(what, f"{owner} and {action.name}", remedy)


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
        unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return False
    return True
