"""What comes in: who may ask, and the body of a request within bounds."""

import asyncio
import hmac
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from app.printable import one_line
from app.serve.refusal import RefusalKind, RefusedError
from app.serve.server_options import Limits, is_loopback

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


_MOST_OF_A_NAME = 32


def headers_of(scope: Scope) -> dict[str, str]:
    """Headers of a request by their names in lower case; one that is repeated is joined."""
    headers: dict[str, str] = {}
    pairs: list[tuple[bytes, bytes]] = scope["headers"]
    for name, value in pairs:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def program_of(headers: Mapping[str, str]) -> str:
    """The name of the program that asks, as it tells it, without its version."""
    first = headers.get("user-agent", "").partition(" ")[0]
    name, _, version = first.partition("/")
    shown = name if version[:1].isdigit() else first
    return one_line(shown)[:_MOST_OF_A_NAME] or "a program"


async def json_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The body of a request that must be JSON.

    Raises:
        RefusedError: it is of another type, too large, or takes too long.
        ClientDisconnect: the client went away.
    """
    headers = headers_of(scope)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(RefusalKind.MEDIA_TYPE, "the content type must be application/json")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(RefusalKind.MEDIA_TYPE, "the body must not be compressed")
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length[:20]) > limits.body:
        raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read(receive, limits)
    except TimeoutError:
        raise RefusedError(RefusalKind.SLOW, "the body took too long to arrive") from None


async def _read(receive: Receive, limits: Limits) -> bytes:
    body = bytearray()
    more = True
    while more:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > limits.body:
            raise _too_large(limits)
        more = message.get("more_body", False)
    return bytes(body)


async def until_gone(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(limits: Limits) -> RefusedError:
    what = f"the body may have at most {limits.body:,} bytes"
    return RefusedError(RefusalKind.TOO_LARGE, what)
