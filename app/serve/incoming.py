"""What comes in: who may ask, and the body of a request within bounds."""

import asyncio
import hmac
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from app.printable import one_line
from app.remote.address import ip_of, is_loopback
from app.serve.refusal import RefusalKind, RefusedError
from app.serve.server_options import Limits

_KEYLESS = frozenset({"/health"})
"""Paths that tell nothing about the model or its use."""
_HOST = re.compile(r"(?:\[(?P<address>[^\]]*)\]|(?P<name>[^:\[]*))(?::[0-9]+)?")


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
        found = _HOST.fullmatch(host)
        name = (found["address"] or found["name"] or "").lower() if found else ""
        if not self._is_own(name):
            what = "this server is not reached under that name; see --allow-host"
            raise RefusedError(RefusalKind.FORBIDDEN, what)
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            what = "requests from other web pages are refused"
            raise RefusedError(RefusalKind.FORBIDDEN, what)
        if self.key and path not in _KEYLESS and not self._has_key(headers):
            raise RefusedError(RefusalKind.UNAUTHORIZED, "the key is missing or wrong")

    def _is_own(self, name: str) -> bool:
        """Whether a Host header names this machine itself, so that no DNS rebinding is behind it.

        A page whose own name is made to resolve to this machine sends that name.
        """
        if is_loopback(name) or name in self.names:
            return True
        if is_loopback(self.bound):
            return False
        return ip_of(name) is not None or name in (self.bound.lower(), socket.gethostname().lower())

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        return hmac.compare_digest(given.encode(errors="replace"), self.key.encode())


_Result = TypeVar("_Result")
_MOST_OF_A_NAME = 32


def program_of(headers: Mapping[str, str]) -> str:
    """The name of the program that asks, by its User-Agent, without the version."""
    first = headers.get("user-agent", "").partition(" ")[0]
    name, _, version = first.partition("/")
    shown = name if version[:1].isdigit() else first
    return one_line(shown)[:_MOST_OF_A_NAME] or "a program"


async def json_body(request: Request, limits: Limits) -> bytes:
    """The body of a request that must be JSON.

    Raises:
        RefusedError: it is of another type, too large, or takes too long.
        ClientDisconnect: the client went away.
    """
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(RefusalKind.MEDIA_TYPE, "the content type must be application/json")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(RefusalKind.MEDIA_TYPE, "the body must not be compressed")
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length[:20]) > limits.body:
        raise _too_large(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body:
                    raise _too_large(limits)
    except TimeoutError:
        raise RefusedError(RefusalKind.SLOW, "the body took too long to arrive") from None
    return bytes(body)


async def checked(body: bytes, check: Callable[[], _Result]) -> _Result:
    """What a check of a body returns; one that may hold files runs beside other requests."""
    return await asyncio.to_thread(check) if b"base64" in body else check()


async def while_connected(work: asyncio.Future[_Result], receive: Receive) -> _Result:
    """The result of some work, which is cancelled once the client closes its connection.

    Raises:
        ClientDisconnect: it did.
    """
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
    finally:
        work.cancel()
        gone.cancel()
        await asyncio.wait({work, gone})
    return work.result()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(limits: Limits) -> RefusedError:
    what = f"the body may have at most {limits.body:,} bytes"
    return RefusedError(RefusalKind.TOO_LARGE, what)
