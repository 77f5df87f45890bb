"""Reads, validates and edits the settings file; edits keep its comments and layout."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from app import actions
from app.settings import catalogue
from app.settings.catalogue import BY_NAME, KEYS, PRESET_KEYS, Key, Value
from backends.base import UsageError
from backends.base.safe_files import make_private_folder, read_text, write_whole
from models.bounded_files import parse_toml

KEYS_TABLE, PRESETS_TABLE = "keys", "presets"

MOST_BYTES = 1 << 18
"""Size limit of a settings file, which may hold long system prompts."""

_MOST_FAULTS = 100
"""Errors after which validation stops; each takes a search for the nearest name."""

WHOLE_FILE = ""
"""Key of the error if the whole file is unreadable."""


_HEAD = """\
# Settings of specchat. Remove the "# " before a key to set it.
# Order of precedence: command line, SPECCHAT_<KEY> environment variables, this file.
"""
_TABLES = """\
# Key bindings: the name of an action, and one key or several separated by commas. F1 lists all.
# [keys]
# new = "ctrl+n"
# chats = "ctrl+o,f10"

# A preset is chosen with /preset NAME or in the settings (F8).
# [presets.exact]
# system = "Answer exactly and in one sentence."
# temperature = 0.0
# max_tokens = 200
"""


def read(path: Path) -> dict[str, Any]:
    """The settings in the file; empty if there is no file.

    Raises:
        UsageError: it cannot be read, a key is unknown, or a value of the wrong kind or range.
    """
    settings, faults = examined(path)
    for error in faults.values():
        raise error
    return settings


def examined(path: Path) -> tuple[dict[str, Any], dict[str, UsageError]]:
    try:
        settings = _parsed(path)
    except UsageError as error:
        return {}, {WHOLE_FILE: error}
    faults: dict[str, UsageError] = {}
    for key, check in _checks(settings, path):
        try:
            check()
        except UsageError as error:
            faults[key] = error
            if len(faults) == _MOST_FAULTS:
                why = f"it has {_MOST_FAULTS} errors or more"
                return {}, {WHOLE_FILE: _unreadable(path, why), **faults}
    for key in faults:
        _leave_out(settings, key)
    return settings, faults


def _leave_out(settings: dict[str, Any], key: str) -> bool:
    """Remove an entry by the name that its error has, whose parts are joined by dots.

    Returns whether it was there: a part may itself contain dots.
    """
    if key in settings:
        del settings[key]
        return True
    return any(
        key.startswith(f"{name}.")
        and _leave_out(cast("dict[str, Any]", table), key.removeprefix(f"{name}."))
        for name, table in settings.items()
        if isinstance(table, dict)
    )


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(_text(path) or "")
    except ValueError as error:
        raise _unreadable(path, str(error)) from error


def _unreadable(path: Path, why: str) -> UsageError:
    remedy = "Mend it, or move it away: specchat then starts as usual."
    return UsageError(f"cannot read the settings in {path}", why, remedy)


def _checks(settings: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the key of each entry and a check that raises a UsageError if it is invalid."""
    for name, value in settings.items():
        if name == KEYS_TABLE:
            yield from _entries(value, name, path, _check_key)
        elif name != PRESETS_TABLE:
            yield name, partial(_check_setting, name, value, path)
        elif not isinstance(value, dict):
            yield name, partial(_table, value, name, path)
        else:
            for preset, values in cast("dict[str, object]", value).items():
                yield from _entries(values, f"{name}.{preset}", path, _check_preset)


def _entries(
    table: object, where: str, path: Path, check: Callable[[str, str, object, Path], None]
) -> Iterator[tuple[str, Callable[[], object]]]:
    if not isinstance(table, dict):
        yield where, partial(_table, table, where, path)
        return
    for name, value in cast("dict[str, object]", table).items():
        yield f"{where}.{name}", partial(check, f"{where}.{name}", name, value, path)


def save(path: Path, changes: Mapping[str, Value | None]) -> None:
    """Set keys in the file and keep the rest; a missing file is created from the template.

    None removes a key, so that its default applies.

    Raises:
        UsageError: the file cannot be used as it is, or cannot be written.
    """
    _parsed(path)
    text = _text(path)
    text = template() if text is None or not text.strip() else text
    try:
        for name, value in changes.items():
            text = _changed(text, name, value)
    except ValueError as error:
        raise UsageError(f"cannot change the settings in {path}", str(error)) from error
    real = path.resolve()  # a link into a folder of settings stays one
    try:
        make_private_folder(real.parent)
        write_whole(real, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}", error.strerror or str(error)) from error


def _changed(text: str, name: str, value: Value | None) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    if value is None:
        if name in document:
            del document[name]
        return tomlkit.dumps(document)
    if name not in document:
        wanted = {**document.unwrap(), name: value}
        shown = _line(BY_NAME[name], value)
        # Uncomment the template's line for the key, unless it is inside a string or a table.
        pattern = re.compile(rf"^# {name} = .*$", re.MULTILINE)
        freed = pattern.sub(lambda _: shown, text, count=1)
        if freed != text and parse_toml(freed) == wanted:
            return freed
    document[name] = value
    return tomlkit.dumps(document)


def _text(path: Path) -> str | None:
    try:
        return read_text(path, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise _unreadable(path, str(error)) from error


def _table(value: object, name: str, path: Path) -> None:
    if not isinstance(value, dict):
        raise UsageError(f"{name} in {path} cannot be used", f"it is a table: [{name}]")


def _check_setting(name: str, value: object, path: Path) -> None:
    names = [*BY_NAME, KEYS_TABLE, PRESETS_TABLE]
    catalogue.known(name, names, f"{path} has an unknown key {name!r}")
    _check(name, name, value, path)


def _check_key(where: str, name: str, value: object, path: Path) -> None:
    what = f"{path} has an unknown action {where!r}"
    catalogue.known(name, [action.name for action in actions.ACTIONS if action.keys], what)
    if not isinstance(value, str) or not value.strip():
        why = 'one key is "ctrl+n", several are "ctrl+n,f10"'
        raise UsageError(f"{where} in {path} cannot be {catalogue.shown(value)}", why)


def _check_preset(where: str, name: str, value: object, path: Path) -> None:
    what = f"{path} has an unknown key {where!r}"
    catalogue.known(name, [key.name for key in PRESET_KEYS], what)
    _check(where, name, value, path)


def _check(where: str, name: str, value: object, path: Path) -> None:
    try:
        catalogue.checked(BY_NAME[name], value)
    except UsageError as error:
        raise UsageError(
            f"{where} in {path} cannot be {catalogue.shown(value)}", error.why
        ) from error


def _line(key: Key, value: object) -> str:
    import tomlkit  # it takes a while

    return f"{key.name} = {tomlkit.item(value).as_string()}"


def template() -> str:
    """The whole file, with every key commented out."""
    blocks = [f"# {key.comment}\n# {_line(key, key.default)}\n" for key in KEYS]
    return "\n".join([_HEAD, *blocks, _TABLES])
