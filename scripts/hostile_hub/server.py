"""A model hub on 127.0.0.1 whose replies a mode may replace by hostile ones."""

import hashlib
import json
import random
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

REPOSITORY = "maker/Small-GGUF"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILE = "Small-Q4_K_M.gguf"
CONTENT = random.Random(0).randbytes(200_000)
SMALL = b"read me"

_BLOCK = 16 << 10
_LONGEST_REQUEST = 64 << 10


class GoneError(Exception):
    """The client hung up, or the trial is over."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One request, and the connection to answer it on."""

    hub: "HostileHub"
    connection: socket.socket
    method: str
    path: str
    headers: dict[str, str]
    is_storage: bool

    @property
    def start(self) -> int:
        """The first byte asked for."""
        return int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))

    def send(self, content: bytes) -> None:
        """Write bytes, counted.

        Raises:
            GoneError: the client has closed the connection.
        """
        try:
            for at in range(0, len(content), _BLOCK):
                self.connection.sendall(content[at : at + _BLOCK])
                self.hub.sent_bytes += len(content[at : at + _BLOCK])
        except OSError as error:
            raise GoneError from error

    def head(self, status: int, headers: dict[str, str] | None = None, reason: str = "X") -> None:
        """Write a status line and headers."""
        lines = [f"HTTP/1.1 {status} {reason}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """Write a whole answer."""
        self.head(status, {"Content-Length": str(len(body)), **(headers or {})})
        if self.method != "HEAD":
            self.send(body)

    def trickle(self, pieces: Iterable[bytes], pause: float = 0.1) -> None:
        """Write pieces with pauses, until the trial is over."""
        for piece in pieces:
            self.send(piece)
            if self.hub.over.wait(pause):
                raise GoneError

    def hang(self) -> None:
        """Say nothing any more."""
        self.hub.over.wait(30)
        raise GoneError


Reply = Callable[[Wire], None]


@dataclass
class HostileHub:
    """What the hub holds, how it replies, and what it saw."""

    outside: Path
    """A folder that no download may touch."""
    cache: Path
    files: dict[str, bytes] = field(default_factory=lambda: {FILE: CONTENT, "README.md": SMALL})
    on_listing: Reply | None = None
    on_resolve: Reply | None = None
    on_storage: Reply | None = None
    endpoint: str = ""
    storage: str = ""
    sent_bytes: int = 0
    asked: int = 0
    foreign_tokens: int = 0
    """Requests to the storage, another origin, that carried the token."""
    tls: ssl.SSLContext | None = None
    """What the hub encrypts with; its storage never does."""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def blobs(self) -> Path:
        """Where the cache keeps contents."""
        return self.cache / f"models--{REPOSITORY.replace('/', '--')}" / "blobs"

    def listing(self) -> dict[str, Any]:
        """The honest listing."""
        siblings = [_entry(path, content) for path, content in self.files.items()]
        return {"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}

    def serve(self, wire: Wire) -> None:
        """Reply to one request."""
        self.asked += 1
        self.foreign_tokens += wire.is_storage and "authorization" in wire.headers
        if wire.path.startswith("/api/"):
            (self.on_listing or self.list_honestly)(wire)
        elif wire.path.startswith("/storage/"):
            (self.on_storage or self.store_honestly)(wire)
        else:
            (self.on_resolve or self.resolve_honestly)(wire)

    def list_honestly(self, wire: Wire) -> None:
        """Reply with the listing."""
        wire.answer(200, json.dumps(self.listing()).encode(), {"Content-Type": "application/json"})

    def resolve_honestly(self, wire: Wire, headers: dict[str, str] | None = None) -> None:
        """Send the client on to the storage, as the real hub does with large files."""
        path = wire.path.partition("/resolve/")[2].partition("/")[2]
        etag = digest(path, self.files.get(path, b""))
        named = {"ETag": f'"{etag}"', "X-Linked-Etag": f'"{etag}"', "X-Repo-Commit": COMMIT}
        wire.answer(
            302, b"", {**named, "Location": f"{self.storage}/storage/{path}", **(headers or {})}
        )

    def store_honestly(self, wire: Wire) -> None:
        """Reply with a file, from the byte asked for on."""
        content, start = self.files.get(wire.path.removeprefix("/storage/")), wire.start
        if content is None:
            wire.answer(404)
            return
        span = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        wire.answer(206 if start else 200, content[start:], span if start else {})


def digest(path: str, content: bytes) -> str:
    """What a hub calls a content: SHA-256 of a large file, git's SHA-1 of a small one."""
    if path.endswith(".gguf"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry = {"rfilename": path, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
    if not path.endswith(".gguf"):
        return {**entry, "blobId": digest(path, content)}
    lfs = {"sha256": digest(path, content), "size": len(content), "pointerSize": 134}
    return {**entry, "lfs": lfs}


@contextmanager
def serving(hub: HostileHub) -> Generator[None]:
    """Serve a hub and its storage, each from an origin of its own."""
    with _listening(hub, False) as hub.endpoint, _listening(hub, True) as hub.storage:
        try:
            yield
        finally:
            hub.over.set()


@contextmanager
def _listening(hub: HostileHub, is_storage: bool) -> Generator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # Little waits unread in the system's buffers, so that what is sent is what is received.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BLOCK)
        threading.Thread(target=_accept, args=(hub, server, is_storage), daemon=True).start()
        scheme = "https" if hub.tls and not is_storage else "http"
        yield f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _accept(hub: HostileHub, server: socket.socket, is_storage: bool) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_talk, args=(hub, connection, is_storage), daemon=True).start()


def _encrypted(hub: HostileHub, connection: socket.socket, is_storage: bool) -> socket.socket:
    if hub.tls is None or is_storage:
        return connection
    return hub.tls.wrap_socket(connection, server_side=True)


def _talk(hub: HostileHub, accepted: socket.socket, is_storage: bool) -> None:
    """One request for each connection."""
    with suppress(GoneError, OSError), _encrypted(hub, accepted, is_storage) as connection:
        received = b""
        while b"\r\n\r\n" not in received and len(received) < _LONGEST_REQUEST:
            more = connection.recv(_BLOCK)
            if not more:
                return
            received += more
        first, *lines = received.decode("latin-1").partition("\r\n\r\n")[0].split("\r\n")
        method, target, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        path = unquote(urlsplit(target).path)
        hub.serve(Wire(hub, connection, method, path, headers, is_storage))
        connection.shutdown(socket.SHUT_WR)


Lie = Callable[[HostileHub], None]


@dataclass(frozen=True, slots=True)
class Mode:
    """A hostile behaviour, and the outcome that a download must have."""

    name: str
    lie: Lie
    says: str | None
    """A pattern of the error's text; None where the right file has to come all the same."""
    is_slow: bool = False
    """Whether it is about time, so that the client has little patience."""
    most_bytes: int = 1 << 20
    """What the client may receive at most."""
