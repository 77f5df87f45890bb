"""`specchat rpc-server`: lends this machine's devices to a specchat on another machine."""

import signal
import socket
from ipaddress import ip_address
from typing import Annotated

import typer

from app.cli.terminal import stderr
from backends.base import ModelError
from backends.engines.backend_selection import LLAMACPP, importing_engine

_PORT = 50_052
"""That of llama.cpp's own ggml-rpc-server."""

_OPEN = (
    "whoever reaches {} can read and crash this program, and perhaps take over the machine: "
    "llama.cpp's RPC knows no passwords and no encryption, and holes in it are known. "
    "Use it on a network of your own, or through a tunnel: ssh -L {}:127.0.0.1:{} THIS_MACHINE"
)


def rpc_server(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of this machine to listen on.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Port.")] = _PORT,
) -> None:
    """Lend this machine's devices to a specchat elsewhere, which is started with --rpc.

    It answers one at a time, until Ctrl+C. Both must have the same version of llama.cpp.
    """
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise ModelError(f"{host} cannot be used", error.strerror or str(error)) from error
    with importing_engine(LLAMACPP):
        from backends.llamacpp.rpc import serve
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the engine never looks at what Python notes
    serve(address, port, lambda: _introduce(address, port))


def _introduce(address: str, port: int) -> None:
    reached = "THIS_MACHINE" if ip_address(address).is_unspecified else address
    stderr.note(f"on the other machine: specchat --rpc {reached}:{port} (Ctrl+C ends this)")
    if not ip_address(address).is_loopback:
        stderr.note(f"warning: {_OPEN.format(f'{address}:{port}', port, port)}")
