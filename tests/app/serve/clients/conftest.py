"""Servers for real clients, and the programs that some of the clients are."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from app.engine.engine import Engine
from app.engine.engine_status import Phase
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.serve.clients.endpoint import Endpoint
from app.serve.limits import Limits
from app.serve.server import Server
from app.serve.server_options import ServerOptions
from app.settings.answering import Answering
from decoding.sampling.sampling_settings import SamplingSettings
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.settled import settle

Serve = Callable[..., Server]
Run = Callable[..., subprocess.CompletedProcess[str]]

PATIENCE_SECONDS = 300
"""How long a client may take, its installation included."""

_HOME = str(Path.home())
"""The caller's; tests have another, where nothing is cached."""

_CACHES = {
    "UV_CACHE_DIR": ("uv", "cache", "dir"),
    "UV_TOOL_DIR": ("uv", "tool", "dir"),
    "NPM_CONFIG_CACHE": ("npm", "config", "get", "cache"),
}
"""Variables of folders that keep what was downloaded, and what tells where they are."""


@pytest.fixture
def serve(home: Path) -> Iterator[Serve]:
    """Serves a scripted model: serve(model, key="", limits=Limits()) -> Server."""
    with ExitStack() as held:

        def start(model: ScriptedModel, key: str = "", limits: Limits | None = None) -> Server:
            options = SessionOptions("scripted", draft="off")
            engine = Engine(options, Paths.of_this_user(), opened(model))
            engine.start()
            held.callback(engine.close, 10.0)
            settle(engine)
            assert engine.status.phase is Phase.READY, engine.status.error
            where = ServerOptions("127.0.0.1", 0, key, limits=limits or Limits())
            server = Server(engine, where, Answering(SamplingSettings(), 2048))
            server.start()
            held.callback(server.close)
            return server

        yield start


def endpoint_of(server: Server, *, needs_key: bool = False) -> Endpoint:
    """What a client is told of a server."""
    loaded = server.served.loaded
    return Endpoint(server.address, loaded.name, loaded.context_size, needs_key)


@pytest.fixture
def run_client(tmp_path: Path) -> Run:
    """Runs a program in a folder and a home of its own, with nothing of the caller's settings.

    Called as run_client(command, cwd=folder, variables={}) -> what it printed; it must end with 0.
    """
    home = tmp_path / "client-home"
    home.mkdir()
    usual = _environment() | {"HOME": str(home), "USERPROFILE": str(home)}

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


@cache
def _environment() -> dict[str, str]:
    """Variables without which programs cannot run or be installed."""
    kept = ("PATH", "LANG", "SYSTEMROOT", "TEMP", "TMP", "SSL_CERT_FILE")
    usual = {name: os.environ[name] for name in kept if name in os.environ}
    usual |= {"HOME": _HOME, "USERPROFILE": _HOME, "NPM_CONFIG_UPDATE_NOTIFIER": "false"}
    for name, (program, *arguments) in _CACHES.items():
        if path := shutil.which(program):
            told = subprocess.run(
                [path, *arguments], env=usual, capture_output=True, text=True, check=True
            )
            usual[name] = told.stdout.strip()
    return usual


def installed(command: Sequence[str]) -> list[str]:
    """A command that installs what it runs; the test is skipped where that is not to be had."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    try:
        tried = subprocess.run(
            [*command, "--version"],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{' '.join(command)}: its installation takes too long")
    if tried.returncode != 0:
        pytest.skip(f"{' '.join(command)} cannot be installed: {tried.stderr.strip()[-300:]}")
    return list(command)
