"""Requests to the hub, whose answers are bounded in time and lead to no place but the web."""

import contextlib
import socket
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from models.byte_sizes import size_text
from models.hub.client import hub_client
from models.hub.hub_settings import HubSettings

if TYPE_CHECKING:
    from httpx2 import URL, Request, Response

_MOST_REDIRECTS = 5


class CutError(Exception):
    """An answer that ended, or was given up for being slow, before it was whole."""


class Connection:
    """What one download asks the hub with. Used by one thread, as a context manager.

    The token goes to the hub alone: the client drops it when it is sent on to another origin.
    """

    def __init__(self, settings: HubSettings) -> None:
        hub_client()
        from httpx2 import Client
        from huggingface_hub import utils

        hub_utils: Any = utils
        # Compressed content could grow without bound, and would not count the bytes a range means.
        identity = {"Accept-Encoding": "identity"}
        self._headers: dict[str, str] = {**hub_utils.build_hf_headers(), **identity}
        self._client = Client(timeout=settings.timeout)
        self._settings = settings
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        self._client.close()

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str] | None = None) -> "Generator[Answer]":
        """The answer to a request, after following redirects. Its body is not read yet.

        Raises:
            CutError: it does not come, or comes too slowly.
            TransportError: of httpx2, the connection fails.
            ValueError: it is sent on without end or to where nobody should go, or is compressed.
        """
        request = self._client.build_request(
            "GET",
            url,
            headers={**self._headers, **(headers or {})},
            extensions={"trace": self._remember_socket},
        )
        with _Pace(self._settings, self._sockets) as pace:
            with pace.kept():
                response = self._final_response(request)
            with closing(response):
                encoding = response.headers.get("Content-Encoding", "identity")
                if response.is_success and encoding != "identity":
                    raise ValueError("it is compressed, which nobody asked for")
                yield Answer(response.status_code, response.headers, response, pace)

    def _final_response(self, request: "Request") -> "Response":
        """Follow redirects without reading their bodies, which the client would, to any length."""
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._client.send(request, stream=True)
            if not response.has_redirect_location:
                return response
            response.close()
            following = response.next_request
            if following is None or not _may_follow(request.url, following.url):
                raise ValueError("it sends us on to an address that cannot be used")
            request = following
        raise ValueError(f"it sends us on more than {_MOST_REDIRECTS} times")

    def _remember_socket(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            opened = info["return_value"].get_extra_info("socket")
            if isinstance(opened, socket.socket):
                self._sockets.add(opened)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the hub answered: status and headers are here, the body is still to be read."""

    status: int
    headers: Mapping[str, str]
    response: "Response"
    pace: "_Pace"

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes.

        Raises:
            CutError: it comes too slowly.
            TransportError: of httpx2, the connection ended early.
        """
        with self.pace.kept():
            for chunk in self.response.iter_raw():
                self.pace.count(len(chunk))
                yield chunk


class _Pace:
    """Gives an answer up that brings too little within a window of time.

    A time-out bounds one read; a byte in time for each would go on for ever, in the headers too.
    So a thread shuts the sockets down, which ends the read that waits.
    """

    def __init__(self, settings: HubSettings, sockets: "WeakSet[socket.socket]") -> None:
        self._settings, self._sockets = settings, sockets
        self._until = time.monotonic() + settings.window
        self._came = 0
        self._over = Event()
        self._gave_up = False

    def __enter__(self) -> Self:
        Thread(target=self._watch, name="pace of a download", daemon=True).start()
        return self

    def __exit__(self, *_reason: object) -> None:
        self._over.set()

    def count(self, size: int) -> None:
        """Bytes came; enough of them open the next window."""
        self._came += size
        if self._came >= self._settings.window_bytes:
            self._came = 0
            self._until = time.monotonic() + self._settings.window

    @contextmanager
    def kept(self) -> Generator[None]:
        """Tell an answer that was given up from one that ended.

        Raises:
            CutError: it was given up.
        """
        from httpx2 import TransportError

        try:
            yield
        except TransportError as error:
            if not self._gave_up:
                raise
            raise self._too_slow() from error
        if self._gave_up:
            raise self._too_slow()

    def _too_slow(self) -> CutError:
        least, window = size_text(self._settings.window_bytes), self._settings.window
        return CutError(f"it sent less than {least} in {window:g} seconds")

    def _watch(self) -> None:
        while not self._over.wait(max(self._until - time.monotonic(), 0.0)):
            if time.monotonic() < self._until:
                continue
            self._gave_up = True
            for one in list(self._sockets):
                with contextlib.suppress(OSError):
                    # Not the method of a TLS socket, which would also change what the reader uses.
                    socket.socket.shutdown(one, socket.SHUT_RDWR)
            return


def _may_follow(url: "URL", following: "URL") -> bool:
    """Whether a redirect leads to the web, and not from an encrypted connection to an open one."""
    return following.scheme == "https" or following.scheme == url.scheme == "http"
