"""Stands between llama.cpp and an RPC server, so that a lost server does not end this process.

llama.cpp aborts the process when an RPC server closes its connection, and waits long for one whose
machine is gone (ggml/src/ggml-rpc/ggml-rpc.cpp). It is given the address of a relay instead, which
passes everything on. Once the server is lost, the relay answers in its place, mostly with zeros;
whoever runs the model looks at `lost` after each pass and throws its result away.
"""

import contextlib
import socket
from collections.abc import Iterator
from struct import Struct
from threading import Thread
from typing import BinaryIO

PROTOCOL = 7, 0
"""RPC_PROTO_MAJOR_VERSION and _MINOR_VERSION of the pinned build, in ggml-rpc.h."""

_CONNECT_SECONDS = 5.0
_GREETING_SECONDS = 10.0
"""A server answers one program at a time; others wait."""

_ENDED = "it ended the connection"
_PIECE = 1 << 20
_HEAD, _SIZE = Struct("<BQ"), Struct("<Q")
_GET_TENSOR, _HELLO = 8, 14
_ANSWERS = {
    0: bytes(16),  # ALLOC_BUFFER: no memory
    1: _SIZE.pack(256),  # GET_ALIGNMENT
    2: _SIZE.pack(1 << 30),  # GET_MAX_SIZE
    3: _SIZE.pack(1 << 12),  # BUFFER_GET_BASE: anything but 0
    7: b"\1",  # SET_TENSOR_HASH: the server has these data
    _GET_TENSOR: b"",  # as many bytes as were asked for
    9: b"\1",  # COPY_TENSOR
    11: 2 * _SIZE.pack(1 << 30),  # GET_DEVICE_MEMORY
    13: bytes(8),  # GET_ALLOC_SIZE: that of the numbers
    _HELLO: bytes((*PROTOCOL, 0, 0)) + bytes(24),
    15: bytes(4),  # DEVICE_COUNT
}
"""Commands that are answered, and what a lost server would have said, so that the engine goes on."""

_PATIENCE = (
    *(("TCP_KEEPIDLE", 5), ("TCP_KEEPALIVE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3)),
    ("TCP_USER_TIMEOUT", 15_000),
)
"""When a machine that is silent is given up, in seconds and milliseconds, as far as a system can:
after 14 or 15 s. A pass may take longer: the machine itself answers, not the program."""


class Relay:
    """Relay to the server at an address; endpoint: where llama.cpp reaches it.

    lost: why the server is of no more use, "" while it is.
    """

    def __init__(self, host: str, port: int) -> None:
        self.lost = ""
        self._address = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._is_closed = False
        Thread(target=self._serve, name="rpc relay", daemon=True).start()

    def close(self) -> None:
        """Take no further connection. Safe to call again."""
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(OSError), socket.create_connection(_parted(self.endpoint)):
                pass  # which wakes the thread

    def _serve(self) -> None:
        with self._listener:
            while True:
                with contextlib.suppress(OSError), self._listener.accept()[0] as engine:
                    if self._is_closed:
                        return
                    engine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    with self._connected() as server, engine.makefile("rb", _PIECE) as requests:
                        self._pass_on(engine, requests, server)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        with socket.socket() as unconnected:
            server = unconnected
            try:
                server = socket.create_connection(self._address, _CONNECT_SECONDS)
                server.settimeout(_GREETING_SECONDS)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _PATIENCE:
                    if (option := getattr(socket, name, None)) is not None:
                        server.setsockopt(socket.IPPROTO_TCP, option, value)
            except OSError as error:
                self._lose(_words(error))
            with server:
                yield server

    def _pass_on(self, engine: socket.socket, requests: BinaryIO, server: socket.socket) -> None:
        with server.makefile("rb", _PIECE) as answers:
            while len(head := requests.read(_HEAD.size)) == _HEAD.size:
                command, left = _HEAD.unpack(head)
                while True:
                    body = requests.read(min(left, _PIECE))
                    left -= len(body)
                    if command == _HELLO:  # offers of RDMA, which no relay could pass on
                        body = bytes(len(body))
                    self._send(server, head + body)
                    head = b""
                    if not left or not body:
                        break
                if command in _ANSWERS:
                    asked = _SIZE.unpack(body[-8:])[0] if command == _GET_TENSOR else None
                    for piece in self._answer(command, asked, answers):
                        engine.sendall(piece)
                if command == _HELLO and not self.lost:
                    server.settimeout(None)

    def _send(self, server: socket.socket, data: bytes) -> None:
        if not self.lost:
            try:
                server.sendall(data)
            except OSError as error:
                self._lose(_words(error))

    def _answer(self, command: int, asked: int | None, answers: BinaryIO) -> Iterator[bytes]:
        """The answer with its size before it; ours from where the server's ends."""
        usual = _ANSWERS[command]
        size, done = len(usual) if asked is None else asked, 0
        prefix = _SIZE.pack(size)
        while done < size:
            piece = b"" if self.lost else self._received(command, size, done, answers)
            piece = piece or usual[done:] or bytes(min(size - done, _PIECE))
            yield prefix + piece
            prefix, done = b"", done + len(piece)

    def _received(self, command: int, size: int, done: int, answers: BinaryIO) -> bytes:
        """The next piece of the server's answer; b"" if it is lost."""
        try:
            if done == 0 and (given := answers.read(_SIZE.size)) != _SIZE.pack(size):
                self._lose("it answers as no RPC server does" if given else _ENDED)
                return b""
            wanted = min(size - done, _PIECE)
            piece = answers.read(wanted)
        except OSError as error:
            is_first = command == _HELLO and isinstance(error, TimeoutError)
            busy = f"it is silent for {_GREETING_SECONDS:.0f} s; perhaps another program uses it"
            self._lose(busy if is_first else _words(error))
            return b""
        if len(piece) < wanted:
            self._lose(_ENDED)
            return b""
        if command == _HELLO and (piece[0] != PROTOCOL[0] or piece[1] > PROTOCOL[1]):
            theirs, ours = ".".join(map(str, piece[:2])), ".".join(map(str, PROTOCOL))
            self._lose(f"it speaks version {theirs} of the protocol, and this build {ours}")
            return b""
        return piece

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why


def _words(error: OSError) -> str:
    is_end = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
    return _ENDED if is_end else error.strerror or str(error)


def _parted(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host, int(port)
