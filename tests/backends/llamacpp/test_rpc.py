"""Layers on other machines: real servers on this one, and some that are none."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from threading import Thread
from types import ModuleType

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends.base import Model, ModelError, PeerLostError, UsageError
from backends.llamacpp import library, rpc, rpc_relay
from backends.llamacpp.rpc import Peers
from tests.fixtures.rpc_servers import free_port, rpc_server

needs_rpc = pytest.mark.skipif(not rpc.has_rpc(), reason="this build of llama.cpp has no RPC")
PROMPT = "The sea is"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(port: int) -> Iterator[Popen[bytes]]:
    with rpc_server(port) as process:
        yield process


@contextmanager
def spread(
    llamacpp: ModuleType, path: Path, *ports: int, layers: int | None = None
) -> Iterator[Model]:
    peers = Peers([("127.0.0.1", port) for port in ports])
    with closing(llamacpp.load(path, gpu_layers=layers, peers=peers)) as model:
        yield model


def greedy_ids(model: Model) -> list[int]:
    ids = list(model.tokenizer.encode(PROMPT, special=True))
    with closing(model.open(256)) as context:
        rows = context.forward(ids, 1)
        for _ in range(24):
            ids.append(int(rows[-1].argmax()))
            rows = context.forward(ids[-1:], 1)
    return ids


@needs_rpc
@pytest.mark.processor("a server on another device rounds otherwise than a card")
@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("layers", [None, 12], ids=["all", "some"])
def test_a_model_elsewhere_writes_what_it_writes_here(
    llamacpp: ModuleType, demo: Model, demo_file: Path, port: int, layers: int | None
) -> None:
    with spread(llamacpp, demo_file, port, layers=layers) as model:
        assert greedy_ids(model) == greedy_ids(demo)
        assert model.info.device.startswith(f"RPC: 127.0.0.1:{port}")
        assert model.info.gpu_layers == layers


@needs_rpc
@pytest.mark.usefixtures("server")
def test_only_the_model_that_is_given_them_uses_other_machines(
    llamacpp: ModuleType, demo_file: Path, port: int
) -> None:
    with spread(llamacpp, demo_file, port), closing(llamacpp.load(demo_file)) as drafter:
        assert not drafter.info.device.startswith("RPC")
        assert not any(one.registry.startswith("RPC") for one in library._devices())
        assert drafter.info.device == library.device(None)


@needs_rpc
@pytest.mark.slow
@pytest.mark.usefixtures("server")
def test_a_server_killed_in_mid_answer_ends_the_pass_and_not_the_process(
    llamacpp: ModuleType, demo: Model, demo_file: Path, port: int
) -> None:
    tokens, lost = demo.tokenizer.encode(PROMPT, special=True), free_port()
    with (
        rpc_server(lost) as process,
        spread(llamacpp, demo_file, port, lost) as model,
        closing(model.open(256)) as context,
    ):
        context.forward(tokens, 1)
        process.kill()
        process.wait()
        with pytest.raises(PeerLostError, match=f"127.0.0.1:{lost}: it ended"):
            context.forward([tokens[-1]], 1)
        assert context.length == len(tokens)
        with pytest.raises(PeerLostError):
            context.save()
        with pytest.raises(PeerLostError):
            model.open(256)


@needs_rpc
def test_nobody_listens(llamacpp: ModuleType) -> None:
    with pytest.raises(PeerLostError, match=r"127\.0\.0\.1:1: "):
        Peers([("127.0.0.1", 1)])


@contextmanager
def answering(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of another kind; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError), listener.accept()[0] as client:
                talk(client)
                while client.recv(1 << 16):
                    pass

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def _older(client: socket.socket) -> None:
    client.sendall(struct.pack("<Q4B24x", 28, rpc_relay.PROTOCOL[0] - 1, 0, 0, 0))


@needs_rpc
@pytest.mark.parametrize(
    ("talk", "why", "is_server"),
    [
        (_older, r"version 6\.0 of the protocol, this build 7\.0", True),
        (
            lambda client: client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "no RPC server",
            False,
        ),
        (lambda client: client.shutdown(socket.SHUT_WR), "it ended the connection", True),
        (lambda client: None, "does not answer, or another program uses it", False),
    ],
    ids=["older", "of another kind", "ending", "silent"],
)
def test_what_is_no_server_of_this_version(
    monkeypatch: pytest.MonkeyPatch,
    llamacpp: ModuleType,
    talk: Callable[[socket.socket], None],
    why: str,
    is_server: bool,
) -> None:
    monkeypatch.setattr(rpc_relay, "_GREETING_SECONDS", 0.2)
    with answering(talk) as port, pytest.raises(PeerLostError, match=why) as caught:
        Peers([("127.0.0.1", port)])
    assert ("of the same version" in caught.value.remedy) == is_server


@needs_rpc
@pytest.mark.usefixtures("server")
def test_the_version_is_that_of_the_build(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(struct.pack("<BQ24x", 14, 24))
        with client.makefile("rb") as answer:  # size and version may come apart
            size, major, minor = struct.unpack("<QBB", answer.read(10))
    assert (size, (major, minor)) == (28, rpc_relay.PROTOCOL)


@needs_rpc
def test_a_port_in_use_is_not_served(llamacpp: ModuleType) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ModelError, match="cannot be served"),
    ):
        rpc.serve("127.0.0.1", taken.getsockname()[1])


def test_a_build_without_rpc_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "has_rpc", lambda: False)
    with pytest.raises(UsageError, match=r"this build of llama\.cpp has no RPC"):
        Peers([("127.0.0.1", 1)])
