"""Devices of other machines, where llama.cpp's RPC server runs; and serving those of this one."""

import ctypes
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from llama_cpp import llama_cpp as api

from backends.base import ModelError, PeerLostError, UsageError
from backends.hardware.host import Gpu, physical_cores
from backends.llamacpp import library
from backends.llamacpp.rpc_relay import REMEDIES, Relay


def has_rpc() -> bool:
    """Whether this build can use other machines."""
    library.start()
    return bool(api.llama_supports_rpc())


class Peers:
    """Devices of RPC servers at hosts and ports, for one model, which closes them.

    They are not registered with the engine: only a model that is given their pointers uses them.
    gpus: the same devices, with their memory.

    Raises:
        UsageError: this build has no RPC.
        PeerLostError: a server cannot be reached, or is of another version.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        add = _procedure("add_server", ctypes.c_void_p, ctypes.c_char_p)
        base = library.shared_library("ggml-base")
        base.ggml_backend_reg_dev_get.restype = ctypes.c_void_p
        self.names = [f"{host}:{port}" for host, port in addresses]
        self.pointers: list[int] = []
        self.gpus: tuple[Gpu, ...] = ()
        self._relays: list[Relay] = []
        for name, (host, port) in zip(self.names, addresses, strict=True):
            relay = Relay(host, port)
            self._relays.append(relay)
            registry = ctypes.c_void_p(add(relay.endpoint.encode()))
            count = base.ggml_backend_reg_dev_count(registry) if registry else 0
            for index in map(ctypes.c_size_t, range(count)):
                self.pointers.append(base.ggml_backend_reg_dev_get(registry, index))
                device = library.device_at(self.pointers[-1])
                self.gpus += (Gpu(name, device.free, device.total),)
            if error := self.error:
                self.close()
                raise error

    @property
    def error(self) -> PeerLostError | None:
        """That of a server that was lost, after which no result means anything."""
        lost = zip(self.names, (relay.lost for relay in self._relays), strict=False)
        errors = (PeerLostError(name, why, REMEDIES.get(why, "")) for name, why in lost if why)
        return next(errors, None)

    def close(self) -> None:
        """Take no further connections. Safe to call again."""
        for relay in self._relays:
            relay.close()


def serve(host: str, port: int, begin: Callable[[], None] = lambda: None) -> NoReturn:
    """Serve this machine's GPUs, or else its processor, at an IPv4 address until the process ends.

    begin: called before, if this build can.

    Raises:
        UsageError: this build has no RPC.
        ModelError: the address cannot be used.
    """
    size, text, pointer = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
    start = _procedure("start_server", None, text, text, size, size, pointer)
    pointers = library.used_pointers() or library.device_pointers()[-1:]
    begin()
    devices = (pointer * len(pointers))(*pointers)
    with _silent_stdout():
        start(f"{host}:{port}".encode(), None, physical_cores(), len(pointers), devices)
    raise ModelError(f"{host}:{port} cannot be served", "perhaps another program listens there")


@contextmanager
def _silent_stdout() -> Generator[None]:
    """Drop what the engine prints: two lines on each connection, of which an answer needs ten."""
    with open(os.devnull, "wb") as nowhere:
        kept = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _procedure(name: str, *types: Any) -> Callable[..., Any]:
    """A procedure of the engine's part for RPC, its result's type first."""
    if not has_rpc():
        why, remedy = "this build of llama.cpp has no RPC", "`specchat doctor` tells how to get it."
        raise UsageError("no other machine can be used", why, remedy)
    registry, base = library.shared_library("ggml"), library.shared_library("ggml-base")
    registry.ggml_backend_reg_by_name.restype = ctypes.c_void_p
    base.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
    found = ctypes.c_void_p(registry.ggml_backend_reg_by_name(b"RPC"))
    called = f"ggml_backend_rpc_{name}".encode()
    return ctypes.CFUNCTYPE(*types)(base.ggml_backend_reg_get_proc_address(found, called))
