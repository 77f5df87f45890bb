"""Real servers of others answer with --backend remote: whole, stopped, and killed in mid-answer."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import httpx2
import pytest

from app.engine.remote_session import RemoteSession, open_remote
from app.engine.reply import Reply, Request
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import ServerError
from decoding.events import FinishReason
from tests.app.serve.clients.programs import modules_from_pypi
from tests.fixtures.rpc_servers import free_port
from tests.fixtures.sessions import GREEDY, conversation

pytestmark = pytest.mark.slow

QUESTION = conversation("Write a long story about the sea.")
SERVER_OF_BINDING = (
    "fastapi==0.165.0", "sse-starlette==3.7.0", "starlette-context==0.3.6",
    "pydantic-settings==2.16.3", "PyYAML==6.0.3",
)  # fmt: skip
"""What llama-cpp-python's extra `server` needs beside it."""

Served = tuple[str, subprocess.Popen[bytes]]


@contextmanager
def running(command: Sequence[str], port: int, **variables: str) -> Iterator[Served]:
    """The base URL of a server that has begun to listen, and its process."""
    url, quiet = f"http://127.0.0.1:{port}/v1", subprocess.DEVNULL
    environment = os.environ | variables
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            end = monotonic() + 120
            while not _answers(url):
                assert process.poll() is None, "the server has ended"
                assert monotonic() < end, "the server does not begin"
            yield url, process
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/models", timeout=2).is_success
    except httpx2.HTTPError:
        return False


@pytest.fixture(params=["llama_cpp.server", "mlx_lm.server", "llama-server"])
def served(request: pytest.FixtureRequest, demo_file: Path, tmp_path: Path) -> Iterator[Served]:
    port = free_port()
    where = "--port", str(port)
    if request.param == "llama_cpp.server":
        pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
        model = "--model", str(demo_file), "--n_ctx", "2048"
        command, path = ("-m", "llama_cpp.server", *model), modules_from_pypi(*SERVER_OF_BINDING)
        start = running([sys.executable, *command, *where], port, PYTHONPATH=path)
    elif request.param == "mlx_lm.server":
        if find_spec("mlx_lm") is None:
            pytest.skip("MLX is not installed")
        folder: Path = request.getfixturevalue("demo_mlx_folder")
        command, hub = ("-m", "mlx_lm.server", "--model", str(folder)), tmp_path / "hub"
        hub.mkdir()  # without which it lists no models
        start = running([sys.executable, *command, *where], port, HF_HUB_CACHE=str(hub))
    else:
        program = shutil.which("llama-server") or pytest.skip("llama-server is not installed")
        start = running([program, "-m", str(demo_file), "-c", "2048", *where], port)
    with start as server:
        yield server


def session_on(url: str, model: str | None) -> RemoteSession:
    options = SessionOptions(backend="remote", url=url, model=model)
    return open_remote(options, Paths.of_this_user(), lambda _: None)


def filled(session: RemoteSession, reply: Reply, after: Callable[[], object]) -> None:
    """Fill a reply; after is called once it has begun to say something."""
    begun: list[bool] = []
    prompt, _ = session.prompt(reply.request)
    for _ in session.stream(prompt, reply, lambda: bool(begun)):
        if reply.text and not begun and after():
            begun.append(True)


def test_it_answers_can_be_stopped_and_is_missed(
    served: Served, request: pytest.FixtureRequest
) -> None:
    url, process = served
    session = session_on(url, None)
    assert session.kind.name == request.node.callspec.params["served"]
    whole = Reply(Request(QUESTION, GREEDY, 24))
    filled(session, whole, bool)
    assert len(whole.text) > 20
    assert whole.finish_reason is FinishReason.LENGTH
    stopped = Reply(Request(QUESTION, GREEDY, 2000))
    filled(session, stopped, lambda: True)
    assert stopped.finish_reason is FinishReason.CANCELLED
    assert stopped.text
    killed = Reply(Request(QUESTION, GREEDY, 2000))
    with pytest.raises(ServerError, match="broke off"):
        filled(session, killed, process.kill)
    assert killed.text
    process.wait()
    with pytest.raises(ServerError, match="cannot be reached"):
        session_on(url, None)
