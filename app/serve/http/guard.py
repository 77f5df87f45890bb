"""Who may ask: checks on the headers of every request, before its body is read."""

import hmac
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from app.serve.refusal import RefusalKind, RefusedError
from app.serve.server_options import is_loopback

_KEYLESS = frozenset({"/health"})
"""Paths that tell nothing about the model or its use."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks of one server. bound: the address that it listens on; key: "" if none is needed.

    names: further names that it is reached by, such as that of a container's host.
    """

    bound: str
    key: str = ""
    names: frozenset[str] = frozenset()

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Check one request; the names of headers are in lower case.

        Raises:
            RefusedError: it comes from a web page, under a foreign name, or without the key.
        """
        host = headers.get("host", "")
        if not self._is_own(_name_of(host)):
            what = "this server is not reached under that name; see --allow-host"
            raise RefusedError(RefusalKind.FORBIDDEN, what)
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            what = "requests from other web pages are refused"
            raise RefusedError(RefusalKind.FORBIDDEN, what)
        if self.key and path not in _KEYLESS and not self._has_key(headers):
            raise RefusedError(RefusalKind.UNAUTHORIZED, "the key is missing or wrong")

    def _is_own(self, name: str) -> bool:
        """Whether a name leads here without a name server that others control.

        A page whose name is made to lead here (DNS rebinding) has that name in its requests.
        """
        if is_loopback(name):
            return True
        if name in self.names:
            return True
        if is_loopback(self.bound):
            return False
        return _is_address(name) or name in (self.bound.lower(), socket.gethostname().lower())

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        return hmac.compare_digest(given.encode(errors="replace"), self.key.encode())


def _name_of(host: str) -> str:
    """The name or address of a Host header, without its port; "" if it is malformed."""
    if host.startswith("["):
        address, closing, port = host[1:].partition("]")
        return address if closing and (not port or _is_port(port)) else ""
    name, colon, port = host.partition(":")
    return name.lower() if not colon or _is_port(f":{port}") else ""


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and text[1:].isdigit()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
