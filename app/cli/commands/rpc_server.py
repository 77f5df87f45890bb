"""`specchat rpc-server`: lends this machine's devices to a specchat on another machine."""

import signal
import socket
from ipaddress import ip_address
from typing import Annotated

import typer

from app.cli.terminal import stderr
from backends.base.safe_files import explained
from backends.engines.backend_selection import LLAMACPP, importing_engine

_OPEN = (
    "warning: llama.cpp's RPC has no passwords and no encryption, and known holes: whoever reaches "
    "this port may take over the machine. Use a cable or network of your own, or a tunnel."
)


def rpc_server(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Port.")] = 50_052,
) -> None:
    """Lend this machine's devices to a specchat that is started elsewhere with --rpc.

    It answers one at a time, until Ctrl+C. Both need the same version of specchat.
    """
    with explained(f"--host cannot be {host!r}"):
        address = socket.gethostbyname(host)
    with importing_engine(LLAMACPP):
        from backends.llamacpp.rpc import serve

    def begin() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the engine never returns to Python
        stderr.note(f"devices of this machine for --rpc, at {address}:{port} (Ctrl+C ends it)")
        if not ip_address(address).is_loopback:
            stderr.note(_OPEN)

    serve(address, port, begin)
