"""Runs clients that are programs, and tells them where a server is."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from app.serve.clients import Endpoint
from app.serve.server import Server
from tests.app.serve.clients.programs import path_with_node

Run = Callable[..., subprocess.CompletedProcess[str]]

PATIENCE_SECONDS = 300
"""How long a client may take."""

_KEPT = ("LANG", "SYSTEMROOT", "TEMP", "TMP")
"""Variables without which programs cannot run."""


def endpoint_of(server: Server, *, needs_key: bool = False) -> Endpoint:
    """What a client is told of a server."""
    loaded = server.served.models.first.facts()
    return Endpoint(server.address, loaded.name, loaded.context_size, needs_key)


@pytest.fixture
def run_client(tmp_path: Path) -> Run:
    """Runs a program in a folder and a home of its own, with nothing of the caller's settings.

    Called as run_client(command, cwd=folder, variables={}) -> what it printed; it must end with 0.
    """
    home = tmp_path / "client-home"
    home.mkdir()
    usual = {name: os.environ[name] for name in _KEPT if name in os.environ}
    usual |= {"HOME": str(home), "USERPROFILE": str(home), "PATH": path_with_node()}

    def run(
        command: Sequence[str], cwd: Path, variables: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            command,
            cwd=cwd,
            env=usual | (variables or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
        return ended

    return run
