"""The settings in effect, at the start and later, and why some cannot be used."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from app.remote.address import REMOTE_KEY
from app.settings import catalogue, file
from app.settings.answering import Answering
from app.settings.catalogue import BY_NAME, KEY_VARIABLE, PREFIX, Value, variable_of
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


def is_on(name: str, paths: Paths) -> bool:
    """Whether a switch is on, such as "learn"; a privacy setting that is unusable is not."""
    return bool(settings_in_effect(paths).values.get(name, BY_NAME[name].default))


@dataclass(frozen=True, slots=True)
class Preferences:
    """Settings of the app.

    file: the settings file, which need not exist. keys: key bindings by name of action. ahead:
    when to read ahead. ahead_waste: processor seconds a message that it may waste.
    """

    file: Path
    theme: str = catalogue.DEFAULT_THEME
    animations: bool = True
    notify: bool = True
    enter_sends: bool = True
    shell: bool = True
    panel: str = "auto"
    ahead: str = catalogue.AHEAD_AUTO
    ahead_waste: float = catalogue.DEFAULT_AHEAD_WASTE
    stars: str = ""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])


NAMES = {one.name for one in fields(Preferences)} - {"file", "keys", "presets"}
"""Of the settings that they hold."""


def preferences_of(settings: InEffect, file: Path) -> Preferences:
    values: dict[str, Any] = {
        name: settings.values[name] for name in NAMES if name in settings.values
    }
    return Preferences(file, **values, keys=settings.keys)


@dataclass(frozen=True, slots=True)
class ServedAt:
    """Address of a server without a path; one that works on this machine.

    is_on_all: whether it listens on all other addresses of this machine too.
    """

    address: str
    is_on_all: bool = False

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    @property
    def words(self) -> str:
        """The base URL, and whether it is not the only one."""
        return f"{self.base_url}{', and on all addresses of this machine' * self.is_on_all}"


@dataclass(frozen=True, slots=True)
class AppStart:
    """Options and settings of the app.

    system, answering: the defaults of new chats. continues: whether the last chat opens.
    notices: settings that cannot be used, a sentence or two each. served_at: where other programs
    reach the model, None if nowhere. preset: what the chat begins with. folder: what it is answered
    with, absolute.
    """

    session: SessionOptions
    system: str
    answering: Answering
    preferences: Preferences
    continues: bool = False
    notices: tuple[str, ...] = ()
    served_at: ServedAt | None = None
    preset: str = ""
    folder: str = ""
