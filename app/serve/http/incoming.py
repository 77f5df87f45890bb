"""Reads the body of a request, within bounds of size and time."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from app.printable import one_line
from app.serve.limits import Limits
from app.serve.refusal import RefusalKind, RefusedError

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
