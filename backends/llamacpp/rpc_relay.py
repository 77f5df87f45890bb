"""Stands between llama.cpp and an RPC server, so that a lost server does not end this process.

llama.cpp aborts the process when an RPC server closes its connection, and waits long for one whose
machine is gone (ggml/src/ggml-rpc/ggml-rpc.cpp). It is given the address of a relay instead, which
passes everything on, and once the server is lost answers in its place, mostly with zeros: whoever
runs the model looks at `lost` after each pass, and throws its result away.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct
from threading import Thread
from typing import BinaryIO, TypeVar

PROTOCOL = 7, 0
"""RPC_PROTO_MAJOR_VERSION and _MINOR_VERSION of the pinned build, in ggml-rpc.h."""

_CONNECT_SECONDS, _GREETING_SECONDS = 5.0, 5.0
_PIECE = 1 << 20
_HEAD, _SIZE = Struct("<BQ"), Struct("<Q")
_GET_TENSOR, _HELLO = 8, 14
_ANSWERS = {
    0: bytes(16),  # ALLOC_BUFFER: no memory
    1: _SIZE.pack(256),  # GET_ALIGNMENT
    2: _SIZE.pack(1 << 30),  # GET_MAX_SIZE
    3: _SIZE.pack(1 << 12),  # BUFFER_GET_BASE: anything but 0
    7: b"\1",  # SET_TENSOR_HASH: the server has these data
    _GET_TENSOR: b"",  # zeros, as many as were asked for
    9: b"\1",  # COPY_TENSOR
    11: 2 * _SIZE.pack(1 << 30),  # GET_DEVICE_MEMORY
    13: bytes(8),  # GET_ALLOC_SIZE: that of the numbers
    _HELLO: bytes((*PROTOCOL, 0, 0)) + bytes(24),
    15: bytes(4),  # DEVICE_COUNT
}
"""Commands that are answered, and what is said for a lost server so that the engine goes on."""

_PATIENCE = {
    "TCP_KEEPIDLE": 5, "TCP_KEEPALIVE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 15_000,
}  # fmt: skip
"""When a silent machine is given up, as far as a system can: after 14 or 15 s. A pass may take
longer, as the machine itself answers, not the program."""

_NO_SERVER = "it answers as no RPC server does"
_SILENT = "it does not answer, or another program uses it"
REMEDIES = {
    _NO_SERVER: "Check the port: `specchat rpc-server` listens on 50052 unless told otherwise.",
    _SILENT: "Check the port, end the other program, or start `specchat rpc-server` again.",
}
"""What to do about reasons for which the usual advice, to start a server, does not fit."""

_T = TypeVar("_T")


class Relay:
    """Relay to the server at an address; endpoint: where llama.cpp reaches it.

    lost: why the server is of no more use, "" while it is.
    """

    def __init__(self, host: str, port: int) -> None:
        self.lost = ""
        self._address, self._is_closed = (host, port), False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._own: tuple[str, int] = self._listener.getsockname()
        self.endpoint = f"127.0.0.1:{self._own[1]}"
        Thread(target=self._serve, name="rpc relay", daemon=True).start()

    def close(self) -> None:
        """Take no further connection. Safe to call again."""
        if not self._is_closed:
            self._is_closed = True
            with suppress(OSError):
                socket.create_connection(self._own).close()  # which wakes the thread

    def _serve(self) -> None:
        with self._listener:
            while not self._is_closed:
                with suppress(OSError), self._listener.accept()[0] as engine:
                    engine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    with self._tried(self._connected) or socket.socket() as server:
                        self._pass_on(engine, server)

    def _connected(self) -> socket.socket:
        server = socket.create_connection(self._address, _CONNECT_SECONDS)
        server.settimeout(_GREETING_SECONDS)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PATIENCE.items():
            if hasattr(socket, name):
                server.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return server

    def _pass_on(self, engine: socket.socket, server: socket.socket) -> None:
        with engine.makefile("rb") as requests, server.makefile("rb") as answers:
            while len(sent := requests.read(_HEAD.size)) == _HEAD.size:
                (command, left), body = _HEAD.unpack(sent), b""
                while sent or left:
                    body = requests.read(min(left, _PIECE))
                    # Greetings offer RDMA, which cannot be passed on.
                    sent += bytes(len(body)) if command == _HELLO else body
                    self._tried(lambda data=sent: server.sendall(data))
                    left, sent = left - len(body) if body else 0, b""
                if command in _ANSWERS:
                    usual = _ANSWERS[command]
                    size = _SIZE.unpack(body[-8:])[0] if command == _GET_TENSOR else len(usual)
                    for piece in self._answer(command, usual, size, answers):
                        engine.sendall(piece)
                if command == _HELLO:
                    server.settimeout(None)

    def _answer(self, command: int, usual: bytes, size: int, answers: BinaryIO) -> Iterator[bytes]:
        """The answer with its size before it; ours from where the server's ends."""
        prefix, done = _SIZE.pack(size), 0

        def received() -> bytes:
            given = b"" if done else answers.read(_SIZE.size)
            if given and given != prefix:
                raise OSError(0, _NO_SERVER)
            piece = answers.read(wanted)
            if len(piece) < wanted:
                raise ConnectionResetError
            if command == _HELLO and (piece[0] != PROTOCOL[0] or piece[1] > PROTOCOL[1]):
                theirs, ours = (".".join(map(str, one[:2])) for one in (piece, PROTOCOL))
                raise OSError(0, f"it speaks version {theirs} of the protocol, this build {ours}")
            return piece

        while done < size:
            wanted = min(size - done, _PIECE)
            piece = self._tried(received) or usual[done:] or bytes(wanted)
            yield piece if done else prefix + piece
            done += len(piece)

    def _tried(self, do: Callable[[], _T]) -> _T | None:
        """What the server gives, None once it is lost."""
        try:
            return None if self.lost else do()
        except (ConnectionResetError, BrokenPipeError):
            self.lost = "it ended the connection"
        except TimeoutError:
            self.lost = _SILENT
        except OSError as error:
            self.lost = error.strerror or str(error)
        return None
