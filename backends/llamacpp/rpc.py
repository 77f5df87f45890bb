"""Devices of other machines, which run llama.cpp's RPC server; and serving the devices of this one.

Both ends have to be of one version of llama.cpp. Neither knows passwords or encryption.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import NoReturn

from llama_cpp import llama_cpp as api

from backends.base import ModelError, PeerLostError, UsageError
from backends.hardware.host import Gpu, physical_cores
from backends.llamacpp import library
from backends.llamacpp.rpc_relay import Relay

_ADD = b"ggml_backend_rpc_add_server"
_SERVE = b"ggml_backend_rpc_start_server"


def has_rpc() -> bool:
    """Whether this build can use other machines."""
    library.start()
    return bool(api.llama_supports_rpc())


class Peers:
    """Devices of RPC servers, for one model, which closes them.

    They are not registered with the engine, so that only a model that is given them uses them.
    gpus: the devices with their memory, as the engine tells it.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Connect to servers at hosts and ports.

        Raises:
            UsageError: this build has no RPC.
            PeerLostError: one cannot be reached, or is of another version.
        """
        add = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(_procedure(_ADD))
        base = library.shared_library("ggml-base")
        base.ggml_backend_reg_dev_get.restype = ctypes.c_void_p
        self.names = [f"{host}:{port}" for host, port in addresses]
        self.pointers: list[int] = []
        self._relays: list[Relay] = []
        gpus: list[Gpu] = []
        for name, (host, port) in zip(self.names, addresses, strict=True):
            self._relays.append(Relay(host, port))
            registry = ctypes.c_void_p(add(self._relays[-1].endpoint.encode()))
            count = base.ggml_backend_reg_dev_count(registry) if registry else 0
            for index in range(count):
                pointer = base.ggml_backend_reg_dev_get(registry, ctypes.c_size_t(index))
                device = library.device_at(pointer)
                self.pointers.append(pointer)
                gpus.append(Gpu(name, device.free, device.total))
            if error := self.error:
                self.close()
                raise error
        self.gpus = tuple(gpus)

    @property
    def error(self) -> PeerLostError | None:
        """That of a server that was lost, after which nothing means anything; None if all live."""
        for name, relay in zip(self.names, self._relays, strict=False):
            if relay.lost:
                return PeerLostError(name, relay.lost)
        return None

    def close(self) -> None:
        """Take no further connections; after the model is closed. Safe to call again."""
        for relay in self._relays:
            relay.close()


def serve(host: str, port: int, begin: Callable[[], None] = lambda: None) -> NoReturn:
    """Serve the devices of this machine, its GPUs or else its processor, until the process ends.

    host: an IPv4 address. begin: called before, if this build can.

    Raises:
        UsageError: this build has no RPC.
        ModelError: the address cannot be used.
    """
    start = ctypes.CFUNCTYPE(
        None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p
    )(_procedure(_SERVE))
    pointers = library.used_pointers() or library.device_pointers()[-1:]
    devices = (ctypes.c_void_p * len(pointers))(*pointers)
    begin()
    start(f"{host}:{port}".encode(), None, physical_cores(), len(pointers), devices)
    raise ModelError(f"{host}:{port} cannot be served", "another program may listen there")


def _procedure(name: bytes) -> int:
    """Address of a procedure of the engine's part for RPC. Raises UsageError: there is none."""
    if has_rpc():
        registry, base = library.shared_library("ggml"), library.shared_library("ggml-base")
        registry.ggml_backend_reg_by_name.restype = ctypes.c_void_p
        base.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
        found = ctypes.c_void_p(registry.ggml_backend_reg_by_name(b"RPC"))
        if address := base.ggml_backend_reg_get_proc_address(found, name):
            return address
    why = "this build of llama.cpp has no RPC"
    raise UsageError("no other machine can be used", why, "`specchat doctor` tells how to get it.")
