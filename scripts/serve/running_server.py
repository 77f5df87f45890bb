"""A server as a program of its own, while a block runs."""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 300.0
"""How long a server may load its model."""

SPECCHAT = str(Path(sys.executable).with_name("specchat"))


@contextmanager
def running_server(
    command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
) -> Generator[str]:
    """Start a server that has `/health`; yields its address once it is ready.

    Raises:
        RuntimeError: it ended, or took too long; what it wrote is shown.
    """
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            wait_until_ready(process, address)
            yield address
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-3000:])
            raise
        finally:
            process.terminate()
            process.wait()


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(process: subprocess.Popen[Any], address: str) -> None:
    """Wait until a program that was started serves.

    Raises:
        RuntimeError: it ended, or took too long.
    """
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except OSError:  # it does not listen yet, or is still loading
            time.sleep(0.2)
    raise RuntimeError("the server does not become ready")
