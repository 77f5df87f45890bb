"""`specchat serve`: what it prints, what it refuses, how it ends."""

import os
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from app.serve.server_options import read_key
from backends.base import UsageError
from tests.app.conftest import PATIENCE_SECONDS, Launch, Specchat

KEY = "0123456789abcdef0123456789abcdef"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl+C reaches whole consoles there")
def test_it_tells_where_it_is_answers_and_ends_with_ctrl_c(
    launch: Launch, llamacpp: object
) -> None:
    process = launch(
        "serve", "--model", "demo", "--draft", "lookup", "--port", "0", "--parallel", "3"
    )
    assert process.stderr is not None
    lines = [process.stderr.readline().decode() for _ in range(3)]
    assert [line.split()[0] for line in lines] == ["address", "model", "drafters"]
    assert "demo" in lines[1]
    assert "lookup" in lines[2]
    address = lines[0].split()[1]
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{address}/models", timeout=PATIENCE_SECONDS) as answered:
        assert b'"demo"' in answered.read()
    with urllib.request.urlopen(f"{address.removesuffix('/v1')}/props") as answered:
        assert b'"total_slots":3' in answered.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_SECONDS) == 130
    assert process.stderr.read() == b""
    assert process.stdout is not None
    assert process.stdout.read() == b""


def test_a_port_in_use_is_one_clear_error(specchat: Specchat) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = specchat("serve", "--port", str(port))
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1, port {port}" in ended.stderr
    assert "--port" in ended.stderr


def test_a_variable_that_cannot_be_used_is_named(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_PORT", "65536")
    ended = specchat("serve")
    assert ended.returncode == 2
    assert "SPECCHAT_PORT" in ended.stderr


def test_serving_beside_a_command_makes_no_sense(specchat: Specchat) -> None:
    ended = specchat("--serve", "ask", "hi")
    assert ended.returncode == 2
    assert "--serve cannot be used with ask" in ended.stderr


def test_a_key_is_one_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert read_key(file) == KEY
    file.write_bytes(b"\xef\xbb\xbf" + KEY.encode() + b"\r\n")  # as Windows editors write it
    assert read_key(file) == KEY


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"has spaces in it, many",
        KEY.encode() + b"\nsecond",
        b"\xff" * 32,
        b"k" * 2000,
    ],
)
def test_what_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be used"):
        read_key(file)


def test_a_key_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError, match="cannot be used"):
            read_key(path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UsageError, match="cannot be used"):
            read_key(tmp_path / "pipe")
