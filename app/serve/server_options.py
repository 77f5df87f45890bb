"""Where a server listens, and who may ask it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from app.serve.limits import Limits
from app.settings.listening import DEFAULT_HOST, DEFAULT_PORT
from backends.base import UsageError
from backends.base.regular_file import NotRegularError, NotTextError, open_regular, text_of

SERVER_NAMES = ("host", "port", "key_file", "allow_host")
"""Names of the options, as in the settings."""

_LEAST_KEY, _MOST_KEY = 16, 1024
"""Characters of a key. Shorter ones can be guessed over a network."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of a server. names: further ones that it is reached by, such as a container's host.

    Raises:
        UsageError: others than this machine could ask it without a key.
    """

    host: str
    port: int
    key: str = ""
    names: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.key and not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} needs a key",
                "whoever reaches this machine could use the model",
                "Give a file that holds one with --key-file.",
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options among some values, as users and the settings file write them.

        Raises:
            UsageError: a value cannot be used.
        """
        names = str(values.get("allow_host") or "").lower().split(",")
        file = values.get("key_file")
        return cls(
            str(values.get("host") or DEFAULT_HOST),
            int(values.get("port", DEFAULT_PORT)),
            read_key(Path(file)) if file else "",
            frozenset(name.strip() for name in names if name.strip()),
        )


def is_wildcard(host: str) -> bool:
    """Whether a host stands for all addresses of this machine."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def read_key(path: Path) -> str:
    """The key in a file: its one line.

    Raises:
        UsageError: the file cannot be read, or what it holds is no key.
    """
    what = f"--key-file {path} cannot be used"
    try:
        with open_regular(path) as file:
            key = text_of(file.read(_MOST_KEY + 5)).strip()
    except (OSError, NotRegularError) as error:
        raise UsageError(what, str(getattr(error, "strerror", "") or error)) from error
    except NotTextError as error:
        raise UsageError(what, str(error)) from error
    if not key.isascii():
        raise UsageError(what, "a key has ASCII characters only")
    if not _LEAST_KEY <= len(key) <= _MOST_KEY or not key.isprintable() or " " in key:
        bounds = f"it must hold one line of {_LEAST_KEY} to {_MOST_KEY:,} characters without spaces"
        raise UsageError(what, bounds, f"Make one, such as: openssl rand -hex 24 > {path}")
    return key
