"""Where a server listens, who may ask it, and what programs may send."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from app.remote.address import ip_of, is_loopback, read_line
from app.settings.catalogue import DEFAULT_HOST, DEFAULT_PORT
from backends.base import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server; sizes are in bytes, times in seconds.

    All are guesses on the generous side of what clients send; none was measured.
    """

    body: int = 10 * 1024 * 1024
    headers: int = 32 * 1024
    header_seconds: float = 10.0
    """Time to send a request's headers, from the connection or the end of the reply before."""
    body_seconds: float = 30.0
    connections: int = 256
    waiting: int = 32
    """Requests in the queue, beside the one that is answered."""
    heartbeat_seconds: float = 10.0
    """Longest silence of a stream; Node's fetch gives up after 300 s."""
    check_seconds: float = 1.0
    """How long a stream's headers wait for the prompt, which tells whether it is too long."""


MOST_VALUES = 100_000
"""Values in a body; long sessions of agents with many tools have some ten thousand."""
MOST_FIELDS = 256
"""Fields of one object whose fields are known."""
MOST_ITEMS = 4096
"""Items of a list that has no bound of its own, such as messages."""
MOST_CHOICES = 16
MOST_STOPS = 16
MOST_STOP_CHARACTERS = 1024
MOST_TOP_LOGPROBS = 20
MOST_BIASES = 1024
MOST_TOOLS = 256


SERVER_NAMES = ("host", "port", "key_file", "allow_host")
"""Names of the options, as in the settings; beside the app there is one model."""
SERVED_NAMES = (*SERVER_NAMES, "models", "unload_after")

_LEAST_KEY, _MOST_KEY = 16, 1024
"""Characters of a key. Shorter ones can be guessed over a network."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of a server. names: further ones that it is reached by, such as a container's host.

    models: what a request chooses from, () for the one that is loaded; unload_after: idle seconds.

    Raises:
        UsageError: others than this machine could ask it without a key.
    """

    host: str
    port: int
    key: str = ""
    names: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    models: tuple[str, ...] = ()
    unload_after: float = 0.0

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
        file = values.get("key_file")
        return cls(
            str(values.get("host") or DEFAULT_HOST),
            int(values.get("port", DEFAULT_PORT)),
            read_key(Path(file)) if file else "",
            frozenset(_listed(str(values.get("allow_host") or "").lower())),
            models=_listed(str(values.get("models") or "")),
            unload_after=60.0 * (values.get("unload_after") or 0.0),
        )


def _listed(text: str) -> tuple[str, ...]:
    names = (name.strip() for name in text.split(","))
    return tuple(dict.fromkeys(filter(None, names)))


def is_wildcard(host: str) -> bool:
    address = ip_of(host)
    return not host or (address is not None and address.is_unspecified)


def read_key(path: Path) -> str:
    """The key in a file: its one line.

    Raises:
        UsageError: the file cannot be read, or what it holds is no key.
    """
    key = read_line(path, what := f"--key-file {path} cannot be used")
    if not key.isascii():
        raise UsageError(what, "a key has ASCII characters only")
    if not _LEAST_KEY <= len(key) <= _MOST_KEY or not key.isprintable() or " " in key:
        bounds = f"it must hold one line of {_LEAST_KEY} to {_MOST_KEY:,} characters without spaces"
        raise UsageError(what, bounds, f"Make one, such as: openssl rand -hex 24 > {path}")
    return key
