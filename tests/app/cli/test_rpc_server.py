"""`specchat rpc-server`: a real one, and what it says."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

rpc = pytest.importorskip("backends.llamacpp.rpc", reason="llama.cpp is not installed")

from tests.app.conftest import Specchat
from tests.fixtures.rpc_servers import free_port

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a signal is sent")
@pytest.mark.skipif(not rpc.has_rpc(), reason="this build of llama.cpp has no RPC")
def test_it_listens_until_ctrl_c_and_prints_no_more() -> None:
    port, (screen, terminal) = free_port(), os.openpty()  # else what it prints may stay in a buffer
    words = [sys.executable, ROOT / "specchat.py", "rpc-server", "--port", str(port)]
    with subprocess.Popen(words, stdout=terminal, stderr=subprocess.PIPE) as process:
        while process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
        assert process.stderr is not None
        assert f"at 127.0.0.1:{port} (Ctrl+C ends it)" in process.stderr.read().decode()
    os.write(terminal, b"end")
    assert os.read(screen, 4096) == b"end"


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_an_open_address_warns(
    monkeypatch: pytest.MonkeyPatch, specchat: Specchat, host: str, warns: bool
) -> None:
    def serve(address: str, port: int, begin: Callable[[], None]) -> None:
        assert (address, port) == (host, 50_052)
        begin()

    monkeypatch.setattr("backends.llamacpp.rpc.serve", serve)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    said = specchat("rpc-server", "--host", host).stderr
    assert ("has no passwords" in said) == warns


def test_what_is_no_host(specchat: Specchat) -> None:
    ended = specchat("rpc-server", "--host", "nowhere.invalid")
    assert ended.returncode == 2
    assert "--host cannot be 'nowhere.invalid': " in ended.stderr
