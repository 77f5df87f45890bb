"""Asks a server over HTTP: whole answers and streams, which can be stopped at any time."""

import contextlib
import re
import socket
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from app.printable import one_line
from app.remote.address import REMOTE_KEY, Address, is_loopback
from app.values import mapping, parsed, text_of
from backends.base import ServerError

if TYPE_CHECKING:
    from httpx2 import Response

_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 600.0
"""A slow machine reads a long prompt in silence for minutes; whoever waits can stop it."""
_SHORT_SECONDS = 20.0
"""For what is no answer, such as the list of models."""

_LOOK_SECONDS = 0.1
"""Between two looks at whether an answer is to be stopped."""

_MOST_BODY, _MOST_EVENT = 64 << 20, 4 << 20
"""Bytes of an answer, and of one event of a stream. Guesses on the generous side: a server that
counts its tokens in each event sends some hundred bytes for each."""

_LONGEST_TEXT = 300
_AGAIN = "What was said so far is kept. Ask again once the server answers."
_LOADING = "What was said so far is kept. It may be loading its model: ask again in a moment."
_IS_API = "Is this the address of its API? That mostly ends in /v1."
_ERROR_NUMBER = re.compile(r"^\[(?:Errno -?\d+|SSL(?:: \w+)?)\] | \(_ssl\.c:\d+\)$")
_NOT_TLS = re.compile("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE")
_LEAST_SECRET = 8
"""Characters of a key that is left out of texts: a shorter one would be found within words."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Sends requests to a server, each over a connection of its own.

    Redirects are not followed: the key is for this server alone.
    """

    address: Address

    def get(self, path: str) -> Mapping[str, Any]:
        """The JSON object at a path below the base URL.

        Raises:
            ServerError: there is none.
        """
        url = f"{self.address.url}{path}"
        with self._sent(url, None, _SHORT_SECONDS, _Sockets()) as response:
            return self._object(b"".join(_bounded(response)).decode(errors="replace"))

    def stream(
        self, path: str, body: Mapping[str, Any], is_stopped: Callable[[], bool]
    ) -> Generator[Mapping[str, Any]]:
        """The objects that a server sends in answer, as they come; it ends early once stopped.

        Raises:
            ServerError: it cannot be asked, refuses, or breaks off.
        """
        came: SimpleQueue[Mapping[str, Any] | Exception | None] = SimpleQueue()
        sockets, url = _Sockets(), f"{self.address.url}{path}"

        def read() -> None:
            try:
                with self._sent(url, body, _SILENT_SECONDS, sockets) as response:
                    for one in self._objects(response):
                        came.put(one)
                came.put(None)
            except Exception as error:  # raised where it is waited for
                came.put(error)

        Thread(target=read, name="answer of a server", daemon=True).start()
        try:
            while not is_stopped():
                try:
                    one = came.get(timeout=_LOOK_SECONDS)
                except Empty:
                    continue
                if one is None:
                    return
                if isinstance(one, Exception):
                    raise one
                yield one
        finally:
            sockets.shut()

    @contextmanager
    def _sent(
        self, url: str, body: Mapping[str, Any] | None, silent: float, sockets: "_Sockets"
    ) -> Generator["Response"]:
        """The response to a request, whose body is not read yet; errors within are explained."""
        from httpx2 import Client, HTTPError, InvalidURL, Timeout

        key = {"Authorization": f"Bearer {self.address.key}"} if self.address.key else {}
        try:
            timeout = Timeout(silent, connect=_CONNECT_SECONDS)
            may_proxy = not is_loopback(self.address.host)
            with Client(timeout=timeout, verify=_trusted(), trust_env=may_proxy) as client:
                request = client.build_request(
                    "GET" if body is None else "POST",
                    url,
                    json=body,
                    headers={"Accept-Encoding": "identity", "User-Agent": "specchat", **key},
                    extensions={"trace": sockets.follow},
                )
                with closing(client.send(request, stream=True)) as response:
                    if not response.is_success:
                        told = b"".join(_bounded(response)).decode(errors="replace")
                        raise self._refused(response.status_code, told, lists=body is None)
                    yield response
        except (HTTPError, InvalidURL, OSError, ValueError) as error:
            raise self._broken(error) from error

    def _objects(self, response: "Response") -> Iterator[Mapping[str, Any]]:
        """The events of a stream, or the one object of an answer that is not streamed."""
        if "event-stream" not in response.headers.get("Content-Type", ""):
            yield self._object(b"".join(_bounded(response)).decode(errors="replace"))
            return
        for line in _lines(response):
            name, _, data = line.partition(":")
            if data.strip() == "[DONE]":
                return
            if name in ("data", "error") and data.strip():
                yield self._object(data)

    def _object(self, text: str) -> Mapping[str, Any]:
        told = mapping(value := parsed(text))
        if not isinstance(value, dict):
            raise ServerError(
                f"{self.address.url} does not speak OpenAI's protocol",
                f"it answers {self._told(text.strip()) or 'nothing'}",
                _IS_API,
            )
        if told.get("error"):
            raise self._refused(200, text)
        return told

    def _refused(self, status: int, text: str, *, lists: bool = False) -> ServerError:
        """Error for what a server says in place of an answer, or of its list of models."""
        error = mapping(parsed(text)).get("error")
        said = text_of(mapping(error).get("message")) or text_of(error)
        said = said or text_of(mapping(parsed(text)).get("message"))
        why = self._told(said) or f"it answers {status}"
        server = self.address.url
        if status in (401, 403):
            given = "does not take the key" if self.address.key else "wants a key"
            remedy = f"Set {REMOTE_KEY}, or name a file that holds it: --remote-key-file."
            return ServerError(f"{server} {given}", why, remedy)
        if status == 404:
            if lists or not said:
                return ServerError(f"{server} does not know this address", why, _IS_API)
            remedy = f"`specchat models list --backend remote --url {server}` lists its models."
            return ServerError(f"{server} does not know this model or address", why, remedy)
        if status == 429:
            return ServerError(f"{server} has too many requests", why, _AGAIN)
        if 300 <= status < 400:
            remedy = "Give the address that it leads to."
            return ServerError(f"{server} leads elsewhere", f"it answers {status}", remedy)
        if status == 503:
            return ServerError(f"{server} cannot answer now", why, _LOADING)
        if status >= 500:
            return ServerError(f"{server} has failed", why, _AGAIN)
        if status == 200:
            return ServerError(f"{server} failed", why, _AGAIN)
        return ServerError(f"{server} refused this", why)

    def _broken(self, error: Exception) -> ServerError:
        from httpx2 import ConnectError, ConnectTimeout, TimeoutException

        server = self.address.url
        why = self._told(_ERROR_NUMBER.sub("", str(error))) or type(error).__name__
        if isinstance(error, ConnectError | ConnectTimeout):
            remedy = "Does the server run, and is the address right?"
            if _NOT_TLS.search(str(error)):
                why, remedy = "it does not answer as https", "Does its address begin with http://?"
            return ServerError(f"{server} cannot be reached", why, remedy)
        if isinstance(error, TimeoutException):
            why = "nothing came for too long"
        return ServerError(f"{server} broke off", why, _AGAIN)

    def _told(self, text: str) -> str:
        """Foreign text for an error: on one line, cut, and without the key it may repeat."""
        if len(self.address.key) >= _LEAST_SECRET:
            text = text.replace(self.address.key, "[key]")
        text = one_line(text)
        return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted, read once: that takes some 70 ms."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


class _Sockets:
    """The connections of a request, which another thread can end."""

    def __init__(self) -> None:
        self._open: WeakSet[socket.socket] = WeakSet()
        self._is_over = Event()

    def follow(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            opened = info["return_value"].get_extra_info("socket")
            if isinstance(opened, socket.socket):
                self._open.add(opened)
        if self._is_over.is_set():
            self.shut()

    def shut(self) -> None:
        """End them now; a blocked read ends too."""
        self._is_over.set()
        for opened in list(self._open):
            with contextlib.suppress(OSError):
                # Not the method of a TLS socket, which changes state that the reader uses.
                socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _bounded(response: "Response") -> Iterator[bytes]:
    """The parts of a body, of which there are not too many.

    Raises:
        ValueError: there are.
    """
    size = 0
    for part in response.iter_raw():
        size += len(part)
        if size > _MOST_BODY:
            raise ValueError(f"it sends more than {_MOST_BODY >> 20} MB")
        yield part


def _lines(response: "Response") -> Iterator[str]:
    """The lines of a stream; what is not UTF-8 is replaced.

    Raises:
        ValueError: one is too long.
    """
    rest = b""
    for part in _bounded(response):
        *lines, rest = (rest + part).split(b"\n") if b"\n" in part else (rest + part,)
        if len(rest) > _MOST_EVENT:
            raise ValueError(f"one event is larger than {_MOST_EVENT >> 20} MB")
        yield from (line.decode(errors="replace").rstrip("\r") for line in lines)
    yield rest.decode(errors="replace")
