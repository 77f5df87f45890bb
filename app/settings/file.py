"""Reads, validates and edits the settings file; edits keep its comments and layout."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app import actions
from app.settings import catalogue
from app.settings.catalogue import BY_NAME, KEYS, PRESET_KEYS, Key, Value
from backends.base import UsageError
from backends.base.safe_files import explained, make_private_folder, read_text, write_whole
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

# A preset is chosen with /preset NAME or in the settings (F8); presets/NAME.toml is one too.
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
    for place, table in _tables(settings):
        for name, value in [*table.items()]:
            where = f"{place}.{name}" if place else name
            try:
                check(where, place, name, value, path)
            except UsageError as error:
                faults[where] = error
                del table[name]
            if len(faults) == _MOST_FAULTS:
                why = f"it has {_MOST_FAULTS} errors or more"
                return {}, {WHOLE_FILE: _unreadable(path, why), **faults}
    return settings, faults


def _tables(settings: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The place and entries of each table; one is looked at once the table that holds it was."""
    yield "", settings
    yield KEYS_TABLE, settings.get(KEYS_TABLE, {})
    presets = settings.get(PRESETS_TABLE, {})
    yield PRESETS_TABLE, presets
    for name, preset in presets.items():
        yield f"{PRESETS_TABLE}.{name}", preset


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(_text(path) or "")
    except ValueError as error:
        raise _unreadable(path, str(error)) from error


def _unreadable(path: Path, why: str) -> UsageError:
    remedy = "Mend it, or move it away: specchat then starts as usual."
    return UsageError(f"cannot read the settings in {path}", why, remedy)


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
    with explained(f"cannot write {path}"):
        make_private_folder(real.parent)
        write_whole(real, text)


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
    except (OSError, ValueError) as error:
        raise _unreadable(path, getattr(error, "strerror", "") or str(error)) from error


def check(where: str, place: str, name: str, value: object, path: Path) -> None:
    """Raise a UsageError if an entry is invalid. place: of its table; path: of its file."""
    names = {
        "": [*BY_NAME, KEYS_TABLE, PRESETS_TABLE],
        KEYS_TABLE: [action.name for action in actions.ACTIONS if action.keys],
        PRESETS_TABLE: [name],
    }.get(place, [key.name for key in PRESET_KEYS])
    what = "action" if place == KEYS_TABLE else "key"
    catalogue.known(name, names, f"{path} has an unknown {what} {where!r}")
    unusable = f"{where} in {path} cannot be {catalogue.shown(value)}"
    if place == PRESETS_TABLE or where in (KEYS_TABLE, PRESETS_TABLE):
        if not isinstance(value, dict):
            raise UsageError(f"{where} in {path} cannot be used", f"it is a table: [{where}]")
    elif place == KEYS_TABLE:
        if not isinstance(value, str) or not value.strip():
            raise UsageError(unusable, 'one key is "ctrl+n", several are "ctrl+n,f10"')
    else:
        try:
            catalogue.checked(BY_NAME[name], value)
        except UsageError as error:
            raise UsageError(unusable, error.why) from error


def _line(key: Key, value: object) -> str:
    import tomlkit  # it takes a while

    return f"{key.name} = {tomlkit.item(value).as_string()}"


def template() -> str:
    """The whole file, with every key commented out."""
    blocks = [f"# {key.comment}\n# {_line(key, key.default)}\n" for key in KEYS]
    return "\n".join([_HEAD, *blocks, _TABLES])
