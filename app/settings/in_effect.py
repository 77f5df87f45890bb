"""The settings in effect, and why some cannot be used."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.paths import HOME_VARIABLE, Paths
from app.remote.address import REMOTE_KEY
from app.settings import catalogue, file
from app.settings.catalogue import BY_NAME, PREFIX, Value, variable_of
from app.settings.values import KEY_VARIABLE
from backends.base import UsageError

CAUTIOUS: Mapping[str, Value] = {"learn": False, "retrieval": False, "offline": True}
"""Values of the privacy settings while nobody can tell what the user set."""


@dataclass(frozen=True, slots=True)
class InEffect:
    """What the settings file and the variables set.

    values: by key. keys: that table of the file. notices: what cannot be used, and why.
    """

    values: Mapping[str, Value]
    keys: Mapping[str, str]
    notices: tuple[str, ...]


def settings_in_effect(paths: Paths) -> InEffect:
    """Read the settings file and the variables, which take precedence; what is wrong is left out.

    A privacy setting that cannot be read has its cautious value.
    """
    settings, faults = file.examined(paths.settings)
    values: dict[str, Value] = {name: settings[name] for name in BY_NAME.keys() & settings.keys()}
    is_unreadable = file.WHOLE_FILE in faults
    values |= {name: CAUTIOUS[name] for name in CAUTIOUS if is_unreadable or name in faults}
    told = {file.WHOLE_FILE: faults[file.WHOLE_FILE]} if is_unreadable else faults
    notices = [notice(error, faulty) for faulty, error in told.items()]
    for name, value in variables():
        if isinstance(value, UsageError):
            notices.append(notice(value, name))
            values |= {name: CAUTIOUS[name]} if name in CAUTIOUS else {}
        else:
            values[name] = value
    notices += [
        f"There is no setting for {variable}: it is ignored." for variable in unknown_variables()
    ]
    keys: dict[str, str] = settings.get(file.KEYS_TABLE, {})
    return InEffect(values, keys, tuple(notices))


def notice(error: UsageError, name: str) -> str:
    """Tell in a sentence or two why a setting cannot be used, and what applies instead."""
    cause = error.summary.rstrip(".")
    if name == file.WHOLE_FILE:
        return f"{cause}. Defaults apply, offline, and nothing is learned."
    if name in CAUTIOUS:
        return f"{cause}. It is taken as {str(CAUTIOUS[name]).lower()}."
    return f"{cause}. It is ignored."


def variables() -> Iterator[tuple[str, Any]]:
    """Yield the key of each variable that is set, and its value or the UsageError about it."""
    for name in BY_NAME:
        try:
            value = catalogue.from_variable(name)
        except UsageError as error:
            yield name, error
            continue
        if value is not None:
            yield name, value


def unknown_variables() -> list[str]:
    known = {HOME_VARIABLE, KEY_VARIABLE, REMOTE_KEY, *map(variable_of, BY_NAME)}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def may_learn(paths: Paths) -> bool:
    """Whether drafters may store what they learn from answers; False if the setting is unusable."""
    return _is_on("learn", paths)


def may_index(paths: Paths) -> bool:
    """Whether earlier chats may be indexed for drafting; False if the setting is unusable."""
    return _is_on("retrieval", paths)


def _is_on(name: str, paths: Paths) -> bool:
    return bool(settings_in_effect(paths).values.get(name, BY_NAME[name].default))
