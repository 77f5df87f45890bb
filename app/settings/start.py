"""All that the app starts with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from app.loading.session_options import SessionOptions
from app.settings.answering import Answering
from app.settings.catalogue import DEFAULT_THEME
from app.settings.in_effect import InEffect
from app.settings.values import AHEAD_AUTO, DEFAULT_AHEAD_WASTE


@dataclass(frozen=True, slots=True)
class Preferences:
    """Settings of the app.

    file: the settings file, which need not exist. keys: key bindings by name of action. ahead:
    when to read ahead. ahead_waste: processor seconds a message that it may waste.
    """

    file: Path
    theme: str = DEFAULT_THEME
    animations: bool = True
    notify: bool = True
    enter_sends: bool = True
    shell: bool = True
    panel: str = "auto"
    ahead: str = AHEAD_AUTO
    ahead_waste: float = DEFAULT_AHEAD_WASTE
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
