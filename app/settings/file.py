"""The settings file: read and checked whole, changed without touching what a person wrote in it."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.settings import catalogue
from app.settings.catalogue import BY_NAME, PRESET_KEYS, Value
from app.tui import actions
from backends.base import UsageError
from models.whole_file import write_whole

KEYS_TABLE, PRESETS_TABLE = "keys", "presets"


def read(path: Path) -> dict[str, Any]:
    """What the file sets; nothing where there is none.

    Raises:
        UsageError: it cannot be read, a key is unknown, or a value of the wrong kind or range.
    """
    try:
        settings = tomllib.loads(_text(path) or "")
    except ValueError as error:
        raise UsageError(f"cannot read the settings in {path}", str(error)) from error
    for name, value in settings.items():
        if name == KEYS_TABLE:
            _check_keys(_table(value, name, path), path)
        elif name == PRESETS_TABLE:
            for preset, values in _table(value, name, path).items():
                _check_preset(f"{name}.{preset}", values, path)
        else:
            names = [*BY_NAME, KEYS_TABLE, PRESETS_TABLE]
            catalogue.known(name, names, f"{path} has an unknown key {name!r}")
            _check(name, name, value, path)
    return settings


def save(path: Path, changes: Mapping[str, Value]) -> None:
    """Set keys in the file and leave the rest as it is; a missing file becomes the template first.

    Raises:
        UsageError: the file cannot be used as it is, or cannot be written.
    """
    from app.settings.template import template

    read(path)
    text = _text(path)
    text = template() if text is None or not text.strip() else text
    try:
        for name, value in changes.items():
            text = _changed(text, name, value)
    except ValueError as error:
        raise UsageError(f"cannot change the settings in {path}", str(error)) from error
    real = path.resolve()  # a link into a folder of settings stays one
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        write_whole(real, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}", error.strerror or str(error)) from error


def _changed(text: str, name: str, value: Value) -> str:
    import tomlkit

    from app.settings.template import line

    document = tomlkit.parse(text)
    if name not in document:
        wanted = {**document.unwrap(), name: value}
        shown = line(BY_NAME[name], value)
        # The template's own line for the key, unless it stands inside a text or a table.
        pattern = re.compile(rf"^# {name} = .*$", re.MULTILINE)
        freed = pattern.sub(lambda _: shown, text, count=1)
        if freed != text and tomllib.loads(freed) == wanted:
            return freed
    document[name] = value
    return tomlkit.dumps(document)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the settings in {path}", str(error)) from error


def _table(value: object, name: str, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} in {path} cannot be used", f"it is a table: [{name}]")
    return value


def _check_keys(table: Mapping[str, Any], path: Path) -> None:
    for name, value in table.items():
        what = f"{path} has an unknown action {f'{KEYS_TABLE}.{name}'!r}"
        catalogue.known(name, [one.name for one in actions.ACTIONS if one.keys], what)
        if not isinstance(value, str) or not value.strip():
            why = 'one key is "ctrl+n", several are "ctrl+n,f10"'
            raise UsageError(f"{KEYS_TABLE}.{name} in {path} cannot be {value!r}", why)


def _check_preset(where: str, values: object, path: Path) -> None:
    for name, value in _table(values, where, path).items():
        what = f"{path} has an unknown key {f'{where}.{name}'!r}"
        catalogue.known(name, [key.name for key in PRESET_KEYS], what)
        _check(f"{where}.{name}", name, value, path)


def _check(where: str, name: str, value: object, path: Path) -> None:
    try:
        catalogue.checked(BY_NAME[name], value)
    except UsageError as error:
        raise UsageError(f"{where} in {path} cannot be {value!r}", error.why) from error
